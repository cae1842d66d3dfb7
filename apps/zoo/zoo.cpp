// zoo: lists the attention mechanisms of weft.
//
//     zoo                 a table of all, for a terminal
//     zoo --markdown      the table of ops/attention/README.md, in Markdown
//     zoo topk            one fact sheet, with its page of equations
//     zoo topk:topk=16    the same for a specification, with its values of the options
//     zoo --json          all fact sheets, or the named one, as JSON
#include <cstdio>

#include <fmt/core.h>

#include "apps/command_line/options.h"
#include "apps/command_line/output.h"
#include "apps/zoo/facts.h"
#include "apps/zoo/tables.h"

namespace weft {
namespace {

int run(int argc, char** argv) {
  Program app("Lists the attention mechanisms of weft.", "zoo");
  std::string wanted;
  bool markdown = false, json = false;
  app.add_option("mechanism", wanted,
                 "a name, or a specification as name:option=value,option=value: its fact sheet and "
                 "its page of equations; without one a table of all");
  const Option markdown_flag =
      app.add_flag("--markdown", markdown, "print the table with all columns, in Markdown");
  app.add_flag("--json", json, "print fact sheets as JSON").excludes(markdown_flag);
  add_plugin_option(app);
  if (const auto status = app.parse(argc, argv)) return *status;
  require(wanted.empty() || !markdown, "--markdown is for the table: it excludes {}", wanted);
  if (wanted.empty()) {
    fmt::print("{}", json ? facts_of_all() : markdown ? markdown_table() : plain_table());
  } else {
    const Sheet sheet(wanted);
    fmt::print("{}", json ? facts_of(sheet) : text_of(sheet));
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run_main("zoo", weft::run, argc, argv); }
