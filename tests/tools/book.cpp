// ./weft book: the pages as a site.
#include <filesystem>
#include <regex>
#include <set>

#include "ops/attention/mechanism.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

namespace fs = std::filesystem;

ProgramRun book(const Words& words) {
  return run_program(WEFT_SOURCE_ROOT "/bench/book/book",
                     Words{"--programs", built("apps")} + words);
}

std::vector<std::string> found(const std::string& text, const std::string& pattern) {
  std::vector<std::string> all;
  const std::regex wanted(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), wanted), end; i != end; ++i)
    all.push_back((*i)[1]);
  return all;
}

// The site, written once.
struct Site {
  TemporaryFolder folder;
  std::string root = folder.path("book");
  ProgramRun run = book({"--no-maps", "--out", root});
};
const Site& site() {
  static const Site made;
  return made;
}

std::vector<fs::path> html_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(site().root)) {
    if (entry.path().extension() == ".html") files.push_back(entry.path());
  }
  return files;
}

// In the page of chapter `name`.
std::string chapter(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : c;
  const fs::path file = fs::path(site().root) / (name + ".html");
  return fs::is_regular_file(file) ? read_file(file.string()) : std::string();
}

TEST_SUITE("tools") {

TEST_CASE(
    "book: every mechanism of the registry has a chapter with equations, and the tape and the "
    "engines" *
    not_sanitized()) {
  if (skipped(site().run)) return;
  REQUIRE_MESSAGE(site().run.status == 0, site().run.err);
  const std::string index = chapter("index");
  int count = 0;
  for (const Mechanism* const mechanism : mechanisms()) {
    if (mechanism->name.starts_with("toy")) continue;  // this program's own
    CAPTURE(mechanism->name);
    const std::string name = mechanism->page.empty() ? mechanism->name : mechanism->page;
    const std::string text = chapter(name);
    CHECK(contains(text, "<math"));
    CHECK(contains(text, "Fact sheet of <code>" + mechanism->name + "</code>"));
    CHECK(contains(text, mechanism->wrapper ? "<h1>" : "The definition, "));
    ++count;
  }
  CHECK(count >= 30);
  for (const char* engine : {"pairs", "scan", "lists", "elementwise"}) {
    CHECK(contains(chapter(std::string("engine-") + engine), "<math"));
  }
  CHECK(contains(chapter("tape"), "tape.backward(loss);"));
  // Curves of a file of panels and of what the benchmark printed; bits a character of every table.
  for (const char* const measured : {"clustered", "mega", "transformer-xl", "linformer"}) {
    CHECK(contains(chapter(measured), "<svg class=\"curve\""));
  }
  for (const char* const trained : {"performer", "mega", "adaptive-span"}) {
    CHECK(contains(chapter(trained), "bits a character"));
  }
}

TEST_CASE("book: rows that attention_bench prints, in columns or with words before the numbers") {
  const TemporaryFolder folder;
  const std::string file = folder.file(
      "rows.txt",
      "# A machine.\n# attention_bench --lengths 1024\n"
      "full                     N    1024     0.219     0.527     728.1   20 %      8.1\n"
      "local:context=64         N    2048  forward    63.000 ms  backward   140.500 ms    "
      "99516.3 ns/token   83 % of GEMM  peak    18.9 MiB\n");
  const ProgramRun run = run_program(
      "python3", {"-c",
                  "import pathlib, sys\nsys.path.insert(0, sys.argv[1])\nimport curves\n"
                  "file = pathlib.Path(sys.argv[2])\n"
                  "print(*(r.curves for r in curves.printed_runs(file, file.parent)))",
                  WEFT_SOURCE_ROOT "/bench/book", file});
  if (skipped(run)) return;
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(run.out ==
        "{'full': {'time': [(1024, 0.746)], 'memory': [(1024, 8.1)]}, 'local:context=64': "
        "{'time': [(2048, 203.5)], 'memory': [(2048, 18.9)]}}\n");
}

TEST_CASE("book: no link and no anchor of it is broken, and nothing comes from elsewhere" *
          not_sanitized()) {
  if (skipped(site().run)) return;
  REQUIRE(site().run.status == 0);
  std::map<std::string, std::set<std::string>> anchors;
  const auto ids = [&](const fs::path& file) -> const std::set<std::string>& {
    const auto [at, added] = anchors.try_emplace(file.string());
    if (added) {
      for (const std::string& id : found(read_file(file.string()), " id=\"([^\"]*)\""))
        at->second.insert(id);
    }
    return at->second;
  };
  int links = 0;
  for (const fs::path& file : html_files()) {
    const std::string text = read_file(file.string());
    CHECK(!contains(text, "<script"));
    std::set<std::string> targets;
    for (const std::string& target : found(text, " (?:href|src)=\"([^\"]*)\""))
      targets.insert(target);
    for (const std::string& target : targets) {
      if (target == "data:,") continue;
      ++links;
      const std::size_t hash = target.find('#');
      const std::string path = target.substr(0, hash);
      const fs::path to = path.empty() ? file : file.parent_path() / path;
      const bool there = fs::is_regular_file(to);
      CHECK_MESSAGE(there, file.string() << " links to " << target);
      if (there && hash != std::string::npos) {
        CHECK_MESSAGE(ids(to).contains(target.substr(hash + 1)), file.string()
                                                                     << " links to " << target);
      }
    }
  }
  CHECK(links > 500);
}

// A folder of programs whose zoo knows what `sheets` prints, and nothing else.
std::string programs_of(const TemporaryFolder& folder, const std::string& sheets) {
  folder.program("zoo", sheets + "\n");
  fs::create_symlink(built("apps/attend"), folder.path("attend"));
  return folder.path();
}

TEST_CASE("book: a mechanism that is registered without a page is refused" * not_sanitized()) {
  const TemporaryFolder folder;
  const ProgramRun run = book(
      {"--no-maps", "--out", folder.path("book"), "--programs",
       programs_of(folder, R"(echo '[{"name": "pageless", "page": "no-such", "inputs": []}]')")});
  if (skipped(run)) return;
  check_refused(run, "the mechanism 'pageless' is registered and has no page");
}

TEST_CASE("book: a mechanism without a causal form has a map, or its chapter says why not" *
          not_sanitized()) {
  for (const auto& [name, shown] : std::vector<std::pair<std::string, std::string>>{
           {"bigbird", "<img src=\"maps/bigbird.png\""}, {"star", "not linear"}}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string real = quoted(built("apps/zoo")) + " --json " + name;
    const ProgramRun run = book({"--out", folder.path("book"), "--programs",
                                 programs_of(folder, "echo '['; " + real + "; echo ']'")});
    if (skipped(run)) return;
    REQUIRE_MESSAGE(run.status == 0, run.err);
    const std::string text = read_file(folder.path("book/" + name + ".html"));
    CHECK(contains(text, shown));
    CHECK(fs::exists(folder.path("book/maps/" + name + ".png")) == contains(text, "<img"));
  }
}

TEST_CASE("book: what is no equation is refused with its file and line" * not_sanitized()) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& equation) {
    return book(
        {"--check", folder.file("a.h", "// A.\n//\n// With\n//\n//     " + equation + "\n")});
  };
  const ProgramRun good =
      check("o_i  = Σ_{j ∈ J(i)} d_ij e^s_ij v_j / √E,   a^r_ij = u_1^k (x_c)ᵀ ‖k'_j‖² 10⁻⁸");
  if (skipped(good)) return;
  CHECK_MESSAGE(good.status == 0, good.err);
  for (const auto& [equation, fault] : std::vector<std::pair<std::string, std::string>>{
           {"a = (b + c", "')' is missing"},
           {"a = b) + c", "')' closes nothing"},
           {"a = [b)", "')' where ']' was wanted"},
           {"a_ = b", "'_' without an index"},
           {"a^ = b", "'^' without an exponent"},
           {"a = _i", "'_' stands at nothing"},
           {"a = b @ c", "no sign of the notation: '@' (U+0040)"}}) {
    const ProgramRun run = check(equation);
    CHECK(run.status == 2);
    CHECK_MESSAGE(contains(run.err, "a.h:5: " + fault), run.err);
  }
  const ProgramRun prose_only = check("sum of a_ij, where j < i");
  CHECK(prose_only.status == 0);
}

TEST_CASE("book: pages render in Chromium without a message" * not_sanitized()) {
  const ProgramRun version = shell("command -v chromium");
  if (version.status != 0) {
    MESSAGE("skipped: there is no chromium");
    return;
  }
  if (skipped(site().run)) return;
  REQUIRE(site().run.status == 0);
  std::vector<std::string> names = {"full", "tape", "engine-pairs"};
  if (std::getenv("WEFT_TEST_ALL") != nullptr) {
    names.clear();
    for (const fs::path& file : html_files()) {
      if (file.parent_path() == site().root) names.push_back(file.stem().string());
    }
  }
  for (const std::string& name : names) {
    CAPTURE(name);
    const TemporaryFolder folder;
    // About a phone: Chromium has no narrower window. Wide content scrolls by itself, not the page.
    const std::string page = chapter(name);
    const std::string measuring = folder.file(
        "page.html",
        page.substr(0, page.rfind("</body>")) +
            "<script>document.title = 'width ' + document.documentElement.scrollWidth + ' of ' + "
            "innerWidth</script></body></html>");
    fs::copy(site().root + "/style.css", folder.path("style.css"));
    const ProgramRun run =
        shell("timeout 60 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=" +
              quoted(folder.path("profile")) + " --window-size=500,900 --enable-logging=stderr" +
              " --dump-dom file://" + quoted(measuring));
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_MESSAGE(!contains(run.err, "CONSOLE"), run.err);
    const auto title = found(run.out, "<title>width ([0-9]+ of [0-9]+)</title>");
    REQUIRE_MESSAGE(title.size() == 1, run.out.substr(0, 500));
    int wide = 0, window = 0;
    REQUIRE(std::sscanf(title[0].c_str(), "%d of %d", &wide, &window) == 2);
    CHECK_MESSAGE(wide <= window, title[0]);
  }
}

}  // TEST_SUITE("tools")

}  // namespace
