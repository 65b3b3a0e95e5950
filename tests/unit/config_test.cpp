// SPDX-License-Identifier: MIT
// Tests of config/: each source, their order, each kind of wrong value with its line, and that the manual
// (sdcguard.toml) and the table of knobs say the same.
#include "config/config.h"
#include "tests/scratch_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace sdcguard {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

const char* look_up(const char* name, void* context) {
  const auto& variables = *static_cast<const Variables*>(context);
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

ConfigResult load(Variables variables) {
  return load_config(look_up, &variables);
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) { std::ofstream(path_) << text; }
  const std::string& path() const { return path_; }

 private:
  const ScratchFolder folder_;
  const std::string path_ = folder_ / "config.toml";
};

std::string error_of(const std::string& toml) {
  const ConfigFile file(toml);
  std::string error = load({{"SDCGUARD_CONFIG", file.path()}}).error;
  const size_t at = error.find(file.path());
  return at == std::string::npos ? error : error.replace(at, file.path().size(), "F");
}

std::string error_of(const char* variable, const char* value) {
  return load({{variable, value}}).error;
}

TEST(Config_Defaults, AreThoseOfTheDesign) {
  const ConfigResult result = load({});
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.config.mode, Mode::kRepair);
  EXPECT_EQ(result.config.every, 20u);
  EXPECT_EQ(result.config.rate, 0.05);
  EXPECT_EQ(result.config.seed, kDefaultSeed);
  EXPECT_EQ(result.config.upgrade, Upgrade::kCall);
  EXPECT_EQ(result.config.fold_cache, FoldCaching::kOn);
  EXPECT_FALSE(result.config.workspace.has_value());
  EXPECT_EQ(result.config.ring_dir, "/dev/shm/sdcguard-" + std::to_string(getuid()));
  EXPECT_EQ(result.config.rank, 0);
  EXPECT_EQ(result.sources.size(), kKnobCount);
  EXPECT_EQ(default_workspace(uint64_t{16} << 30), (uint64_t{16} << 30) / 50);
  EXPECT_EQ(default_workspace(uint64_t{141} << 30), uint64_t{1} << 30);
}

TEST(Config_Sources, EnvironmentHoldsOverFileOverDefault) {
  const ConfigFile file("mode = \"detect\"\nseed = 7\nworkspace = \"256 MiB\"\nring_dir = \"/tmp/r\"\nrank = 3\n");
  const ConfigResult result =
      load({{"SDCGUARD_CONFIG", file.path()}, {"SDCGUARD_SEED", "0x10"}, {"SDCGUARD_UPGRADE", "off"}});
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.config.mode, Mode::kDetect);
  EXPECT_EQ(result.config.seed, 16u);
  EXPECT_EQ(result.config.upgrade, Upgrade::kOff);
  EXPECT_EQ(result.config.workspace, (Bytes{256u << 20}));
  EXPECT_EQ(result.config.ring_dir, "/tmp/r");
  EXPECT_EQ(result.config.rank, 3);
  EXPECT_EQ(result.file, file.path());
  EXPECT_EQ(result.sources[static_cast<size_t>(KnobIndex::mode)], file.path() + ":1");
  EXPECT_EQ(result.sources[static_cast<size_t>(KnobIndex::seed)], "SDCGUARD_SEED");
}

TEST(Config_Sources, EveryKnobHasItsVariable) {
  const ConfigResult result = load({{"SDCGUARD_MODE", "observe"},
                                    {"SDCGUARD_RATE", "0.5"},
                                    {"SDCGUARD_SEED", "9223372036854775807"},
                                    {"SDCGUARD_UPGRADE", "call"},
                                    {"SDCGUARD_WORKSPACE", "1.5GiB"},
                                    {"SDCGUARD_RING_DIR", "/x"},
                                    {"SDCGUARD_RANK", "5"}});
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.config.mode, Mode::kObserve);
  EXPECT_EQ(result.config.rate, 0.5);
  EXPECT_EQ(result.config.every, 0u);
  EXPECT_EQ(result.config.seed, kMaxSeed);
  EXPECT_EQ(result.config.workspace, (Bytes{3u << 29}));
  EXPECT_EQ(result.config.ring_dir, "/x");
  EXPECT_EQ(result.config.rank, 5);
  for (const Knob& knob : kKnobs) {
    std::string name = "SDCGUARD_";
    for (const char* c = knob.key; *c != 0; ++c) name += static_cast<char>(toupper(*c));
    EXPECT_EQ(name, knob.environment);
  }
}

TEST(Config_Sources, EmptyVariableIsUnset) {
  const ConfigResult result = load({{"SDCGUARD_EVERY", ""}, {"SDCGUARD_CONFIG", ""}});
  EXPECT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.config.every, 20u);
}

TEST(Config_Rate, EveryIsItsInverseAndTheLaterSourceHolds) {
  EXPECT_EQ(load({{"SDCGUARD_EVERY", "4"}}).config.rate, 0.25);
  const ConfigFile file("every = 10\n");
  const ConfigResult result = load({{"SDCGUARD_CONFIG", file.path()}, {"SDCGUARD_RATE", "0"}});
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.config.rate, 0.0);
  EXPECT_EQ(result.config.every, 0u);
}

TEST(Config_Rate, BothInOneSourceIsRefused) {
  EXPECT_EQ(load({{"SDCGUARD_EVERY", "4"}, {"SDCGUARD_RATE", "0.1"}}).error,
            "sdcguard: SDCGUARD_EVERY = 4 and SDCGUARD_RATE = 0.1: give one, not both");
  EXPECT_EQ(error_of("rate = 0.1\n\nevery = 4\n"),
            "sdcguard: F:3: every = 4: line 1 sets the other of every and rate; give one, not both");
}

TEST(Config_Rank, ComesFromTheLauncher) {
  EXPECT_EQ(load({{"SLURM_PROCID", "7"}}).config.rank, 7);
  EXPECT_EQ(load({{"OMPI_COMM_WORLD_RANK", "8"}}).config.rank, 8);
  EXPECT_EQ(load({{"RANK", "2"}, {"SLURM_PROCID", "7"}}).config.rank, 2);
  EXPECT_EQ(load({{"SDCGUARD_RANK", "1"}, {"RANK", "2"}}).config.rank, 1);
  // Another tool's variable with another meaning is not our error.
  EXPECT_EQ(load({{"RANK", "captain"}, {"SLURM_PROCID", "7"}}).config.rank, 7);
}

TEST(Config_WrongValue, NamesKeyLineAndWhatIsAllowed) {
  EXPECT_EQ(error_of("# a comment\n\nevery = 0\n"),
            "sdcguard: F:3: every = 0: must be an integer from 1 to 4294967295");
  EXPECT_EQ(error_of("mode = \"fast\"\n"),
            "sdcguard: F:1: mode = \"fast\": must be one of \"repair\", \"detect\", \"observe\", \"off\"");
  EXPECT_EQ(error_of("every = -3"), "sdcguard: F:1: every = -3: must be an integer from 1 to 4294967295");
  EXPECT_EQ(error_of("every = \"20\""), "sdcguard: F:1: every = \"20\": must be an integer from 1 to 4294967295");
  EXPECT_EQ(error_of("every = 2.5"), "sdcguard: F:1: every = 2.5: must be an integer from 1 to 4294967295");
  EXPECT_EQ(error_of("rate = nan"), "sdcguard: F:1: rate = nan: must be a number from 0 to 1");
  EXPECT_EQ(error_of("rate = 1.01"), "sdcguard: F:1: rate = 1.01: must be a number from 0 to 1");
  EXPECT_EQ(error_of("seed = -1"), "sdcguard: F:1: seed = -1: must be an integer from 0 to 9223372036854775807");
  EXPECT_EQ(error_of("upgrade = \"on\""),
            "sdcguard: F:1: upgrade = \"on\": must be one of \"call\", \"site\", \"off\"");
  EXPECT_EQ(error_of("fold_cache = true"), "sdcguard: F:1: fold_cache = true: must be one of \"on\", \"off\"");
  EXPECT_EQ(
      error_of("workspace = \"12 parsecs\""),
      "sdcguard: F:1: workspace = \"12 parsecs\": must be a size from \"1 MiB\" to \"1 TiB\", such as \"256 MiB\"");
  EXPECT_EQ(error_of("workspace = 4096"),
            "sdcguard: F:1: workspace = 4096: must be a size from \"1 MiB\" to \"1 TiB\", such as \"256 MiB\"");
  EXPECT_EQ(error_of("ring_dir = \"rings\""), "sdcguard: F:1: ring_dir = \"rings\": must be an absolute path");
  EXPECT_EQ(error_of("mode = true"),
            "sdcguard: F:1: mode = true: must be one of \"repair\", \"detect\", \"observe\", \"off\"");
  EXPECT_EQ(error_of("rank = [1]"), "sdcguard: F:1: rank = an array: must be an integer from 0 to 2147483647");
}

TEST(Config_WrongValue, InTheEnvironmentNamesTheVariable) {
  EXPECT_EQ(error_of("SDCGUARD_EVERY", "0"), "sdcguard: SDCGUARD_EVERY = 0: must be an integer from 1 to 4294967295");
  EXPECT_NE(error_of("SDCGUARD_EVERY", "20 "), "");
  EXPECT_NE(error_of("SDCGUARD_EVERY", "+20"), "");
  EXPECT_NE(error_of("SDCGUARD_EVERY", "99999999999999999999"), "");
  EXPECT_NE(error_of("SDCGUARD_RATE", "5%"), "");
  EXPECT_NE(error_of("SDCGUARD_RATE", "inf"), "");
  EXPECT_NE(error_of("SDCGUARD_MODE", "Repair"), "");
  EXPECT_NE(error_of("SDCGUARD_RANK", "4294967296"), "");
}

TEST(Config_WrongValue, StaysOneShortLine) {
  const std::string error = error_of("SDCGUARD_MODE", (std::string("a\nb\x1b[31m") + std::string(5000, 'x')).c_str());
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(error.size(), 300u);
}

TEST(Config_WrongValue, LeavesTheProgramUnguarded) {
  const ConfigResult result = load({{"SDCGUARD_MODE", "repair"}, {"SDCGUARD_EVERY", "never"}});
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.config.mode, Mode::kOff);
  EXPECT_FALSE(result.config.ring_dir.empty());
}

TEST(Config_UnknownKey, NamesTheNearest) {
  EXPECT_EQ(error_of("evry = 5\n"), "sdcguard: F:1: evry: no such key; the nearest is every");
  EXPECT_EQ(error_of("seed = 1\nworkspce = \"1 GiB\"\n"),
            "sdcguard: F:2: workspce: no such key; the nearest is workspace");
  EXPECT_EQ(error_of("telemetry = 5\n"),
            "sdcguard: F:1: telemetry: no such key; known are mode, every, rate, seed, upgrade, workspace, fold_cache, "
            "ring_dir, rank");
  EXPECT_EQ(error_of("[policy]\nevery = 5\n").substr(0, 30), "sdcguard: F:1: policy: no such");
}

TEST(Config_UnknownKey, InTheEnvironmentIsFoundForRun) {
  const char* const wrong[] = {"HOME=/", "SDCGUARD_CONFIG=/x", "SDCGUARD_MODE=off", "SDCGUARD_EVRY=1", nullptr};
  EXPECT_EQ(unknown_environment(wrong), "sdcguard: SDCGUARD_EVRY: no such variable; the nearest is SDCGUARD_EVERY");
  const char* const right[] = {"HOME=/", "SDCGUARD_CONFIG=/x", "SDCGUARD_MODE=off", nullptr};
  EXPECT_EQ(unknown_environment(right), "");
}

TEST(Config_File, ThatCannotBeReadIsSaid) {
  EXPECT_EQ(error_of("SDCGUARD_CONFIG", "/nonexistent/x.toml"),
            "sdcguard: SDCGUARD_CONFIG = /nonexistent/x.toml: cannot be read: No such file or directory");
  EXPECT_EQ(error_of("SDCGUARD_CONFIG", "/"), "sdcguard: SDCGUARD_CONFIG = /: cannot be read: not a regular file");
  EXPECT_EQ(error_of("SDCGUARD_CONFIG", "/dev/null"), "");
  EXPECT_EQ(error_of("SDCGUARD_CONFIG", "/dev/zero"),
            "sdcguard: SDCGUARD_CONFIG = /dev/zero: cannot be read: larger than 1 MiB");
  EXPECT_EQ(error_of("every = \n").substr(0, 26), "sdcguard: F:1: not TOML: E");
  EXPECT_NE(error_of(std::string(2 << 20, '#')).find("larger than 1 MiB"), std::string::npos);
  EXPECT_NE(error_of(std::string("mode = \"\xff\xfe\"\n")), "");
  EXPECT_EQ(error_of(""), "");
}

TEST(Config_File, LeavesErrnoAsFound) {
  errno = 77;
  EXPECT_FALSE(load({{"SDCGUARD_CONFIG", "/nonexistent"}}).ok());
  EXPECT_EQ(errno, 77);
}

TEST(Config_Manual, DocumentsEveryKnobWithItsDefault) {
  const fs::path manual = fs::path(SDCGUARD_SOURCE_DIR) / "config/sdcguard.toml";
  std::ifstream in(manual);
  std::stringstream text;
  text << in.rdbuf();
  ASSERT_FALSE(text.str().empty()) << manual;
  const ConfigResult defaults = load({});
  for (size_t i = 0; i < kKnobCount; ++i) {
    const Knob& knob = kKnobs[i];
    EXPECT_NE(text.str().find(std::string("\n#") + knob.key + " = "), std::string::npos) << knob.key;
    EXPECT_NE(text.str().find(std::string(" ") + knob.environment + "\n"), std::string::npos) << knob.environment;
    // Those whose default is a value and not a rule.
    if (knob.type == KnobType::kSize || knob.type == KnobType::kPath || std::string_view(knob.key) == "rank") continue;
    std::string line = std::string("\n#") + knob.key + " = " + value_text(defaults.config, static_cast<KnobIndex>(i));
    EXPECT_NE(text.str().find(line + "\n"), std::string::npos) << line;
    EXPECT_NE(line.find(knob.default_text), std::string::npos) << line;
  }
  // The file as it stands, and with every line but the other name of `every` put in force, loads.
  EXPECT_EQ(error_of(text.str()), "");
  std::string in_force = text.str();
  for (const Knob& knob : kKnobs) {
    if (std::string_view(knob.key) == "rate") continue;
    const size_t at = in_force.find(std::string("\n#") + knob.key + " = ");
    ASSERT_NE(at, std::string::npos);
    in_force.erase(at + 1, 1);
  }
  EXPECT_EQ(error_of(in_force), "");
}

TEST(Units_Bytes, AreReadStrictly) {
  EXPECT_EQ(parse_bytes("256 MiB"), (Bytes{256u << 20}));
  EXPECT_EQ(parse_bytes("1GB"), (Bytes{1000000000u}));
  EXPECT_EQ(parse_bytes(" 0.5 KiB "), (Bytes{512}));
  EXPECT_EQ(parse_bytes("0"), (Bytes{0}));
  EXPECT_EQ(parse_bytes("9223372036854775807"), (Bytes{0x7fffffffffffffffull}));
  for (const char* wrong : {"", "MiB", "-1", "1e3", "1 mib", "1 M", "0.3 KiB", "1.", "1.0000001 GiB", "1 GiB x",
                            "9223372036854775808", "99999999999999999999 B", "8388608 TiB"}) {
    EXPECT_FALSE(parse_bytes(wrong).has_value()) << wrong;
  }
  EXPECT_EQ(format_bytes(Bytes{256u << 20}), "256 MiB");
  EXPECT_EQ(format_bytes(Bytes{1000}), "1000 B");
  EXPECT_EQ(format_bytes(Bytes{0}), "0 B");
}

}  // namespace
}  // namespace sdcguard
