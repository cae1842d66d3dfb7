#include "bench/peer.h"

#include <csignal>
#include <cstdlib>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/error.h"

namespace weft::bench {

Peer::Peer(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];  // a socket: a write to a program that has ended is an error and not a signal
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "{}: cannot open a pipe",
          command[0]);
  child_ = ::fork();
  if (child_ == 0) {
    std::signal(SIGINT, SIG_IGN);
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  to_ = ends[0];
  from_ = ::fdopen(::dup(ends[0]), "r");
  require(child_ > 0 && from_ != nullptr, "{}: cannot be started", command[0]);
}

Peer::~Peer() {
  if (from_ != nullptr) std::fclose(from_);
  if (to_ >= 0) ::close(to_);  // closes its input, which ends it
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
}

Row Peer::read() {
  char* line = nullptr;
  std::size_t room = 0;
  const ssize_t length = ::getline(&line, &room, from_);
  const std::string text(length > 0 ? line : "");
  std::free(line);
  require(length > 0, "the peer ended");
  const Row json = Row::parse(text, nullptr, false);
  require(json.is_object(), "the peer's answer is not a JSON object: {:.60}", text);
  require(!json.contains("error"), "{}", json.value("error", ""));
  return json;
}

Row Peer::ask(const std::string& line) {
  const std::string text = line + "\n";
  require(::send(to_, text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size()),
          "the peer ended");
  return read();
}

}  // namespace weft::bench
