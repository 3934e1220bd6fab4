// SPDX-License-Identifier: MIT
// Runs the built program as a user does, and keeps what it prints, returns and costs.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tests/support/test_files.hpp>

namespace tpsim::test {

struct Ran {
  int status = 0;  ///< exit status; 128 + signal when it was killed
  std::string out, err;
  long most_kib = 0;  ///< largest resident memory
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The program with these arguments, in a clean environment: a UTF-8 locale and nothing else, then
/// `more`. Standard output and error are files, so the program is not on a terminal.
inline Ran run_tpsim(const std::vector<std::string>& arguments, const Environment& more = {}) {
  const TempDir folder;
  const std::string out = folder.path() / "out", err = folder.path() / "err";
  Environment environment{{"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C.UTF-8"}};
  for (const auto& [name, value] : more)
    if (name == "LC_ALL")
      environment[1].second = value;
    else
      environment.emplace_back(name, value);
  std::vector<std::string> variables, words{TPSIM_PROGRAM};
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> p;
    for (std::string& t : texts) p.push_back(t.data());
    p.push_back(nullptr);
    return p;
  };
  std::vector<char*> argv = pointers(words), envp = pointers(variables);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, TPSIM_PROGRAM, &files, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw std::runtime_error("cannot start " TPSIM_PROGRAM);
  int state = 0;
  rusage used{};
  wait4(child, &state, 0, &used);

  return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), read_text(out),
          read_text(err), used.ru_maxrss};
}

/// "--tp 4 --layer qkv" as words; for arguments without blanks or quotes.
inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}
inline Ran run_line(const std::string& line, const Environment& more = {}) {
  return run_tpsim(words_of(line), more);
}

inline std::size_t count_of_text(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tpsim::test
