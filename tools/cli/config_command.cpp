// SPDX-License-Identifier: MIT
// sdcguard config: prints what is in force, where each value came from, and what each knob does.
#include <cstdio>

#include "config/config.h"
#include "tools/cli/commands.h"

extern char** environ;

namespace sdcguard {
namespace {

void print_wrapped(const char* text) {
  constexpr size_t kColumns = 100;
  std::string line = "#";
  for (const char* word = text; *word != '\0';) {
    size_t length = 0;
    while (word[length] != '\0' && word[length] != ' ') ++length;
    if (line.size() + 1 + length > kColumns) {
      printf("%s\n", line.c_str());
      line = "#";
    }
    line.append(" ").append(word, length);
    word += length;
    while (*word == ' ') ++word;
  }
  printf("%s\n", line.c_str());
}

}  // namespace

int config_command() {
  const ConfigResult loaded = load_config();
  if (!loaded.ok()) {
    fprintf(stderr, "%s\n", loaded.error.c_str());
    return 2;
  }
  printf("# In force now; file: %s\n", loaded.file.empty() ? "none" : loaded.file.c_str());
  for (size_t i = 0; i < kKnobCount; ++i) {
    const Knob& knob = kKnobs[i];
    const auto index = static_cast<KnobIndex>(i);
    printf("\n");
    print_wrapped(knob.doc);
    printf("# %s: %s. Default: %s.\n", knob.environment, knob.allowed, knob.default_text);
    const std::string value = value_text(loaded.config, index);
    // Not every value in force can be written down: a rule, or the other name of what was given.
    const bool rule = (index == KnobIndex::workspace && !loaded.config.workspace) ||
                      (index == KnobIndex::every && loaded.config.every == 0) ||
                      (index == KnobIndex::rate && loaded.config.every != 0);
    printf("%s%s = %s  # %s\n", rule ? "# " : "", knob.key, value.c_str(), loaded.sources[i].c_str());
  }
  const std::string unknown = unknown_environment(environ);
  if (!unknown.empty()) fprintf(stderr, "%s\n", unknown.c_str());
  return unknown.empty() ? 0 : 2;
}

}  // namespace sdcguard
