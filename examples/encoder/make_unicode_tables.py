#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes unicode_tables.h from Python's own unicodedata: python3 make_unicode_tables.py > unicode_tables.h"""

import unicodedata

HANGUL = range(0xAC00, 0xD7A4)  # decomposes by arithmetic, done in tokenizer.cpp
SURROGATES = range(0xD800, 0xE000)


def category(code):
    return unicodedata.category(chr(code))


def folded(code):
    """What BERT's normalizer makes of one code point: canonical decomposition, marks dropped, lower case."""
    kept = (c for c in unicodedata.normalize("NFD", chr(code)) if unicodedata.category(c) != "Mn")
    return "".join(kept).lower()


def ranges(wanted):
    found, first = [], None
    for code in range(0x110001):
        inside = code < 0x110000 and wanted(code)
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            found.append((first, code - 1))
            first = None
    return found


def table(name, comment, rows):
    lines, line = [], "   "
    for row in rows:
        if len(line) + len(row) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {row},"
    lines.append(line)
    body = "\n".join(lines)
    print(f"// {comment}\n{name} = {{\n{body}\n}};\n")


print(f"""// SPDX-License-Identifier: MIT
// Character classes and folds of the BERT tokenizer; written by make_unicode_tables.py from Unicode {unicodedata.unidata_version}.
// clang-format off
#pragma once

#include <cstdint>

namespace encoder {{

struct CodeRange {{
  char32_t first, last;
}};

// Up to three code points, 0 for none.
struct Fold {{
  char32_t from, to[3];
}};
""")
span = "inline constexpr CodeRange {}[]".format
pairs = lambda wanted: [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(wanted)]
table(span("kMarkNonspacing"), "Category Mn: dropped after decomposition.", pairs(lambda c: category(c) == "Mn"))
table(span("kPunctuation"), "Categories P*: each is a word of its own (ASCII symbols are added in code).",
      pairs(lambda c: category(c)[0] == "P"))
table(span("kSpace"), "Category Zs, and the line and paragraph separators.", pairs(lambda c: category(c) in ("Zs", "Zl", "Zp")))
table(span("kOther"), "Categories Cc, Cf, Co: dropped, but for tab, newline and carriage return.",
      pairs(lambda c: category(c) in ("Cc", "Cf", "Co")))
folds = []
for code in range(0x110000):
    if code in HANGUL or code in SURROGATES or category(code) == "Mn":
        continue
    to = folded(code)
    if to != chr(code):
        folds.append("{0x%X, {%s}}" % (code, ", ".join("0x%X" % ord(c) for c in to)))
table("inline constexpr Fold kFolds[]", "Code points that decomposition, mark removal and lower case change, in order.", folds)
print("}  // namespace encoder")
