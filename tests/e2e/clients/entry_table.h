// SPDX-License-Identifier: MIT
// How the client programs read shim/entry_points.def: with SDCGUARD_ENTRY(...) defined as
// ENTRY_ROW_EXPANDED(__VA_ARGS__), each product, creation and destruction becomes ENTRY_ROW(kind, symbol, (parameters),
// (arguments)), which the including file defines for the while. Observed entries are left out.
#pragma once

#define ENTRY_ROW_OF_kProduct(...) ENTRY_ROW(kProduct, __VA_ARGS__)
#define ENTRY_ROW_OF_kCreate(...) ENTRY_ROW(kCreate, __VA_ARGS__)
#define ENTRY_ROW_OF_kDestroy(...) ENTRY_ROW(kDestroy, __VA_ARGS__)
#define ENTRY_ROW_OF_kObserved(...)
#define ENTRY_ROW_PICK(index, kind, form, ...) ENTRY_ROW_OF_##kind(__VA_ARGS__)
#define ENTRY_ROW_EXPANDED(...) ENTRY_ROW_PICK(__VA_ARGS__)
