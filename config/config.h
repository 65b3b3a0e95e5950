// SPDX-License-Identifier: MIT
// Configuration: takes defaults, a TOML file and the environment, gives one Config or one clear line; runs once, at the
// first guarded call in the shim and at the start of each tool.
//
// Sources, each over the one before it: defaults < file < environment. The file is SDCGUARD_CONFIG, else
// /etc/sdcguard/sdcguard.toml where that exists. One name all along: TOML key = Config field = SDCGUARD_<KEY>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/units.h"
#include "sdcguard/types.h"

namespace sdcguard {

inline constexpr uint64_t kDefaultEvery = 20;                      // DESIGN section 4, step 2
inline constexpr uint64_t kMaxEvery = 4294967295ull;               // one call in 2^32 - 1
inline constexpr uint64_t kDefaultSeed = 1573259821;               // fixed: every rank must draw alike
inline constexpr uint64_t kMaxSeed = 0x7fffffffffffffffull;        // what a TOML integer can hold
inline constexpr uint64_t kMinWorkspaceBytes = uint64_t{1} << 20;  // below it no product of use fits
inline constexpr uint64_t kMaxWorkspaceBytes = uint64_t{1} << 40;  // 1 TiB, past any device's memory
inline constexpr const char* kDefaultConfigPath = "/etc/sdcguard/sdcguard.toml";

// May a call's product be computed into FP32 scratch and finished by us?
enum class Upgrade : uint8_t { kOff = 0, kCall = 1, kSite = 2 };
inline constexpr const char* kUpgradeNames[] = {"off", "call", "site"};

// May the fold of a matrix that comes again be kept from one call to the next?
enum class FoldCaching : uint8_t { kOff = 0, kOn = 1 };
inline constexpr const char* kFoldCachingNames[] = {"off", "on"};

enum class KnobType : uint8_t { kChoice, kInteger, kNumber, kSize, kPath };

// Every knob, once. X(key, ENVIRONMENT, type, default, what is allowed, what it does)
// The loader, `sdcguard config` and the check of config/sdcguard.toml are made from this table.
#define SDCGUARD_KNOBS(X)                                                                                             \
  X(mode, "SDCGUARD_MODE", kChoice, "repair", "one of \"repair\", \"detect\", \"observe\", \"off\"",                  \
    "repair: wrong entries are found and put right before anything downstream reads them. detect: found, not put "    \
    "right. observe: the call runs untouched, bit for bit, and its output is checked as delivered. off: nothing.")    \
  X(every, "SDCGUARD_EVERY", kInteger, "20", "an integer from 1 to 4294967295",                                       \
    "One call in this many is checked (1: every call), spread without a fixed period. Not together with rate.")       \
  X(rate, "SDCGUARD_RATE", kNumber, "0.05", "a number from 0 to 1",                                                   \
    "The share of calls that is checked; every = N is rate = 1/N. 0: calls are counted, none is checked.")            \
  X(seed, "SDCGUARD_SEED", kInteger, "1573259821", "an integer from 0 to 9223372036854775807",                        \
    "Seed of the choice of calls and of the sign draws. Give every rank of a job the same.")                          \
  X(upgrade, "SDCGUARD_UPGRADE", kChoice, "call", "one of \"call\", \"site\", \"off\"",                               \
    "call: a checked 16-bit product runs into FP32 scratch where it may, and is finished by sdcguard. site: so does " \
    "every product that may, checked or not: outputs do not depend on which calls are checked. off: products are "    \
    "checked as delivered.")                                                                                          \
  X(workspace, "SDCGUARD_WORKSPACE", kSize, "the lesser of 1 GiB and 2% of the device",                               \
    "a size from \"1 MiB\" to \"1 TiB\", such as \"256 MiB\"",                                                        \
    "Most scratch memory to take on each device. A call that needs more is checked as delivered.")                    \
  X(fold_cache, "SDCGUARD_FOLD_CACHE", kChoice, "on", "one of \"on\", \"off\"",                                       \
    "on: what the check needs of a weight is kept once three calls agreed on it, in a quarter of workspace more; a "  \
    "weight that changes is noticed. off: it is formed anew at every checked call.")                                  \
  X(ring_dir, "SDCGUARD_RING_DIR", kPath, "/dev/shm/sdcguard-UID", "an absolute path",                                \
    "Folder of the rings, in shared memory: the shim writes there, sdcguardd and sdcguard read.")                     \
  X(rank, "SDCGUARD_RANK", kInteger, "RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK, else 0",                            \
    "an integer from 0 to 2147483647", "Rank of this process in its job. Only reported; no decision depends on it.")

struct Config {
  Mode mode = Mode::kRepair;
  uint64_t every = kDefaultEvery;     // Special values: 0 = `rate` was given instead.
  double rate = 1.0 / kDefaultEvery;  // in force, always set: 1.0 / every when `every` is in force. 0: none is checked.
  uint64_t seed = kDefaultSeed;
  Upgrade upgrade = Upgrade::kCall;
  FoldCaching fold_cache = FoldCaching::kOn;
  std::optional<Bytes> workspace;  // nothing: the lesser of 1 GiB and 2% of the device (default_workspace()).
  std::string ring_dir;            // absolute, never empty.
  int32_t rank = 0;
};

// The cap on scratch where `workspace` is not set, for a device of that much memory.
inline constexpr uint64_t default_workspace(uint64_t device_bytes) {
  const uint64_t share = device_bytes / 50;
  return share < (uint64_t{1} << 30) ? share : uint64_t{1} << 30;
}

struct Knob {
  const char* key;
  const char* environment;
  KnobType type;
  const char* default_text;
  const char* allowed;
  const char* doc;
};
inline constexpr Knob kKnobs[] = {
#define X(key, env, type, default_text, allowed, doc) {#key, env, KnobType::type, default_text, allowed, doc},
    SDCGUARD_KNOBS(X)
#undef X
};
inline constexpr size_t kKnobCount = sizeof(kKnobs) / sizeof(kKnobs[0]);

// Place of a knob in kKnobs.
enum class KnobIndex : size_t {
#define X(key, env, type, default_text, allowed, doc) key,
  SDCGUARD_KNOBS(X)
#undef X
};

struct ConfigResult {
  Config config;  // where `error` is set: defaults with mode = off, so that the program runs unguarded.
  std::string
      error;  // empty, or the one line to print, without a newline: "sdcguard: job.toml:12: every = 0: must be ..."
  std::vector<std::string> sources;  // of each knob, by KnobIndex: "default", "job.toml:12", "SDCGUARD_EVERY".
  std::string file;                  // the file that was read. Empty: none.
  bool ok() const { return error.empty(); }
};

// Looks up one environment variable; null where it is not set. `context` is passed through.
using EnvironmentLookup = const char* (*)(const char* name, void* context);

// Reads all sources of the calling process. Blocks on file reads, allocates, prints nothing, throws nothing (a failed
// allocation gives an error like any other). Not for use in a signal handler.
ConfigResult load_config() noexcept;

// The same with the environment passed in, for tests and for `sdcguard run`.
ConfigResult load_config(EnvironmentLookup lookup, void* context) noexcept;

// An SDCGUARD_ variable in `environment` (null-terminated array of "NAME=value") that no knob has: the line to print,
// with the nearest known name; empty where there is none. The shim ignores such variables, `sdcguard run` refuses them.
std::string unknown_environment(const char* const* environment);

// The value in force as it would be written in TOML; for `workspace` unset, the words of its default.
std::string value_text(const Config& config, KnobIndex knob);

// The nearest of the knobs' keys by edit distance; null where none is near enough to be meant.
const char* nearest_key(std::string_view key) noexcept;

// True where the word of a config or a command line names a mode; sets `mode`.
bool parse_mode(std::string_view text, Mode* mode) noexcept;

}  // namespace sdcguard
