// --plugin: mechanisms from outside the tree, in every program.
#include <array>
#include <filesystem>

#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "ops/attention/mechanism.h"
#include "tests/check.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

const std::string tree = WEFT_SOURCE_ROOT;

// The command of ops/attention/README.md.
std::string compiler(const std::string& headers) {
  return "g++ -std=c++20 -shared -fPIC -I" + quoted(headers) + " ";
}

// A plugin of this source; returns its path.
std::string plugin_of(const TemporaryFolder& folder, const std::string& name,
                      const std::string& source, const std::string& headers = tree) {
  const std::string made = folder.path(name + ".so");
  const ProgramRun run =
      shell(compiler(headers) + quoted(folder.file(name + ".cpp", source)) + " -o " + quoted(made));
  REQUIRE_MESSAGE(run.status == 0, run.err);
  return made;
}

std::string sharp_source() { return read_file(tree + "/tests/install/sharp.cpp"); }

// One for all cases; it takes seconds to compile.
const std::string& sharp() {
  static const TemporaryFolder folder;
  static const std::string made = plugin_of(folder, "sharp", sharp_source());
  return made;
}

// The block of plain ops that uses every role of the interface. This program has it too.
const std::string& toy() {
  static const TemporaryFolder folder;
  static const std::string made =
      plugin_of(folder, "toy", read_file(tree + "/tests/attention/toy.cpp"));
  return made;
}

bool skipped() {
  if (sanitized) MESSAGE("skipped: the library carries the sanitizers, and so would the plugin");
  return sanitized;
}

const Words small_model = {"--attention", "sharp", "--width",  "16",
                           "--heads",     "2",     "--length", "16"};

TEST_SUITE("tools") {

TEST_CASE("plugin: zoo lists it and has its sheet") {
  if (skipped()) return;
  const ProgramRun table = app("zoo", {"--plugin", sharp()});
  CHECK_MESSAGE(table.status == 0, table.err);
  CHECK(contains(table.out, "\nsharp "));
  CHECK(contains(table.out, "\nfull "));
  CHECK(contains(app("zoo", {"sharp", "--plugin", sharp()}).out, "[B N H E]"));
  CHECK(contains(app("zoo", {"sharp", "--json", "--plugin=" + sharp()}).out, "\"sharp\""));
  CHECK(contains(app("zoo", {"--markdown", "--plugin", sharp()}).out, "| `sharp` |"));
  check_refused(app("zoo", {"sharp"}), "there is no mechanism 'sharp'");
}

TEST_CASE("plugin: attend computes by it") {
  if (skipped()) return;
  const TemporaryFolder folder;
  std::map<std::string, Tensor> tensors;
  for (const char* name : {"q", "k", "v", "dout"}) {
    tensors[name] = random_normal({2, 9, 3, 4}, DType::f64, tensors.size());
  }
  write_checkpoint({tensors, {}}, folder.path("in"));
  const auto results = [&](const Words& more) {
    const ProgramRun run =
        app("attend", Words{"--in", folder.path("in"), "--out", folder.path("out"), "--force",
                            "--causal", "--backward"} +
                          more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return read_checkpoint(folder.path("out")).tensors;
  };
  const auto own = results({"--attention", "sharp", "--plugin", sharp()});
  const auto wanted = results({"--attention", "full:temperature=0.9"});
  CHECK(own.size() == 4);
  for (const auto& [name, tensor] : wanted) CHECK(same_bits(own.at(name), tensor));
}

TEST_CASE("plugin: attend runs a block over x, with parameters and buffers of the file") {
  if (skipped()) return;
  const AttentionSpec spec("toy:width=5,extra=3");
  const AttentionSizes sizes{.B = 2, .N = 7, .S = 7, .H = 1, .d = 6, .N_max = 9};
  std::map<std::string, Tensor> file;
  std::vector<Variable> inputs;
  for (const AttentionInput& input : attention_inputs(spec, sizes)) {
    Tensor value = random_normal(input.shape, DType::f64, file.size());
    if (input.role == Role::index) value = Tensor::from(std::vector<i64>{1, 4}, {2});
    file[input.name] = value;
    inputs.push_back(input.role == Role::index ? Variable(value) : Variable::leaf(value));
  }
  file["dout"] = random_normal({2, 7, 5}, DType::f64, 99);
  Tape tape;
  const Attended wanted =
      attend(spec, {.causal = true, .lengths = {}, .query_lengths = {}}, inputs);
  tape.backward(wanted.out, file["dout"]);

  const TemporaryFolder folder;
  write_checkpoint({file, {}}, folder.path("in"));
  const auto run = [&](const Words& more) {
    const ProgramRun run =
        app("attend", Words{"--in", folder.path("in"), "--out", folder.path("out"), "--attention",
                            spec.text(), "--plugin", toy(), "--causal", "--force"} +
                          more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "2 items, 7 positions, width 6"));
    return read_checkpoint(folder.path("out")).tensors;
  };
  for (const char* layout : {"bnhe", "bhne"}) {
    const auto results = run({"--backward", "--layout", layout});
    CHECK(same_bits(results.at("out"), wanted.out.value()));
    CHECK(same_bits(results.at("penalty"), wanted.penalty.value()));
    CHECK(same_bits(results.at("omega"), file["omega"]));
    const std::vector<std::string> names = {"x", "gate", "w", "table", "omega", "marks", "bias"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      CAPTURE(names[i]);
      const bool learnt = names[i] != "omega" && names[i] != "marks";
      REQUIRE(results.contains("d" + names[i]) == learnt);
      if (learnt) CHECK(same_bits(results.at("d" + names[i]), inputs[i].gradient()));
    }
  }
  // A buffer that the file does not contain is drawn, and reported so that it can be given.
  const Tensor omega = file["omega"];
  file.erase("omega"), file.erase("dout");
  write_checkpoint({file, {}}, folder.path("in"));
  const auto drawn = run({});
  CHECK_FALSE(same_bits(drawn.at("omega"), omega));
  file["omega"] = drawn.at("omega");
  write_checkpoint({file, {}}, folder.path("in"));
  CHECK(same_bits(run({}).at("out"), drawn.at("out")));
  file.erase("w");
  write_checkpoint({file, {}}, folder.path("in"));
  check_refused(app("attend", {"--in", folder.path("in"), "--out", folder.path("none"),
                               "--attention", "toy", "--plugin", toy()}),
                "has no w [d 2d+extra], an input of toy");
}

TEST_CASE("plugin: zoo and the benchmark know a block") {
  if (skipped()) return;
  const Words with = {"--plugin", toy()};
  const ProgramRun sheet = app("zoo", Words{"toy"} + with);
  CHECK_MESSAGE(sheet.status == 0, sheet.err);
  for (const char* part : {"x ", "[B N d]", "[d 2d+extra]", "[⌈N_max/step⌉ d]", "omega"}) {
    CAPTURE(part);
    CHECK(contains(sheet.out, part));
  }
  const ProgramRun json = app("zoo", Words{"toy", "--json"} + with);
  CHECK_MESSAGE(json.status == 0, json.err);
  CHECK(contains(json.out, "\"omega\""));
  for (const Words& form : {Words{}, Words{"--layer"}}) {
    const ProgramRun bench = run_program(
        built("bench/attention_bench"),
        Words{"--lengths", "8,16", "--heads", "2", "--key-width", "4", "--value-width", "4",
              "--seconds", "0", "--no-peers", "--attention", "toy", "--device", "cpu"} +
            form + with);
    CHECK_MESSAGE(bench.status == 0, bench.err);
    CHECK(contains(bench.out, "toy "));
  }
}

TEST_CASE("plugin: a model learns with it, and its checkpoint says what it wants") {
  if (skipped()) return;
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const Words train =
      Words{"train", "--out", out, "--steps", "20", "--epoch-steps", "10", "--quiet"} + small_model;
  const Words with = {"--plugin", sharp()};
  const ProgramRun run = app("charlm", train + with);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(app("charlm", Words{"eval", "--checkpoint", out} + with).status == 0);
  CHECK(app("charlm", Words{"info", "--checkpoint", out} + with).status == 0);
  CHECK(app("charlm", train + with + Words{"--resume", "--steps", "30"}).status == 0);
  for (const Words& words :
       {Words{"eval", "--checkpoint", out}, Words{"sample", "--checkpoint", out},
        Words{"info", "--checkpoint", out},
        Words{"export", "--checkpoint", out, "--out", folder.path("x")}}) {
    const ProgramRun refused = app("charlm", words);
    check_refused(refused, "its attention is 'sharp', and this program has no mechanism 'sharp'");
    CHECK(contains(refused.err, "load it with --plugin FILE.so"));
  }
  check_refused(app("charlm", {"train", "--out", out, "--resume"}),
                "load it with --plugin FILE.so");
}

TEST_CASE("plugin: a file of options may name its mechanism") {
  if (skipped()) return;
  const TemporaryFolder folder;
  const std::string file = folder.file("run.toml", "attention = \"sharp\"\n");
  const Words words = {"train", "--config", file, "--dry-run"};
  const ProgramRun run = app("charlm", words + Words{"--plugin", sharp()});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "sharp attention"));
  check_refused(app("charlm", words), "run.toml:1");
  check_refused(app("charlm", {"train", "--config", folder.file("p.toml", "plugin = \"x.so\"\n")}),
                "plugin");
}

TEST_CASE("plugin: the other apps and the benchmarks") {
  if (skipped()) return;
  const Words with = {"--plugin", sharp()};
  const ProgramRun words = app("wordlm", Words{"info"} + small_model + with);
  CHECK_MESSAGE(words.status == 0, words.err);
  const ProgramRun pictures = app("vision", Words{"info", "--attention", "sharp"} + with);
  CHECK_MESSAGE(pictures.status == 0, pictures.err);
  const ProgramRun bench = run_program(
      built("bench/attention_bench"),
      Words{"--lengths", "16,32,64,128", "--heads", "2", "--key-width", "4", "--value-width", "4",
            "--seconds", "0", "--no-peers", "--attention", "sharp", "full", "--device", "cpu"} +
          with);
  CHECK_MESSAGE(bench.status == 0, bench.err);
  CHECK(contains(bench.out, "sharp "));
  const ProgramRun naive = run_program(built("bench/attention_bench"),
                                       Words{"--lengths", "16", "--seconds", "0", "--no-peers",
                                             "--attention", "sharp", "--reference"} +
                                           with);
  CHECK(naive.status != 0);
  CHECK(contains(naive.err + naive.out, "sharp has no definition in plain ops"));
  if (std::filesystem::exists(built("bench/train_bench"))) {
    const ProgramRun step = run_program(
        built("bench/train_bench"), Words{"--preset", "text8-full-position", "--attention", "sharp",
                                          "--bare", "--batch", "1", "--seconds", "0", "--json"} +
                                        with);
    CHECK_MESSAGE(step.status == 0, step.err);
    CHECK(contains(step.out, "\"attention\":\"sharp\""));
  }
}

TEST_CASE("plugin: what cannot be loaded is one line") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& file, const std::string& part) {
    CAPTURE(file);
    for (const char* program : {"zoo", "charlm", "attend"}) {
      Words words = {"--plugin", file};
      if (program == std::string("attend")) words = words + Words{"--in", "x", "--out", "y"};
      check_refused(app(program, words), part);
    }
  };
  refused(folder.path("none.so"), "none.so: No such file or directory");
  refused(folder.path(), "is not a shared object");
  refused(folder.file("text.so", "not a shared object, and longer than a header of one\n"),
          "text.so: cannot be loaded: ");
  if (skipped()) return;
  refused(plugin_of(folder, "nothing", "int x;"), "registers no mechanism");
  const std::string head =
      "#include \"ops/attention/mechanism.h\"\nusing namespace weft;\n"
      "Attended f(const AttentionSpec&, const AttentionCall&, "
      "std::span<const Variable> x) { return x[0]; }\n"
      "AttentionInputs i(const AttentionSpec&, const AttentionSizes&) { return {}; }\n";
  const auto registration = [&](const std::string& fields) {
    return head + "const Registration one{Mechanism{" + fields + "}};\n";
  };
  refused(plugin_of(folder, "taken", registration(".name = \"full\", .inputs = i, .attend = f")),
          "mechanism full: the name is registered twice");
  refused(plugin_of(folder, "name", registration(".name = \"a:b\", .inputs = i, .attend = f")),
          "'a:b': a name is of");
  refused(plugin_of(folder, "empty", registration(".name = \"mine\", .inputs = i")),
          "wanted the functions `inputs` and");
  refused(plugin_of(folder, "foreign",
                    registration(".name = \"mine\", .inputs = i, .attend = f") +
                        "int elsewhere();\nint y = elsewhere();\n"),
          "needs the symbol elsewhere(), which neither weft nor");
}

TEST_CASE("plugin: one that was built with the headers of another weft is refused") {
  if (skipped()) return;
  const TemporaryFolder folder;
  const std::string headers = folder.path("headers");
  for (const char* room : {"runtime", "autograd", "ops"}) {
    std::filesystem::create_directories(headers);
    std::filesystem::copy(tree + "/" + room, headers + "/" + room,
                          std::filesystem::copy_options::recursive);
  }
  const std::string file = headers + "/ops/attention/mechanism.h";
  const std::string header = read_file(file);
  // A further member, another signature, another meaning.
  const std::array<std::pair<std::string, std::string>, 3> changes{
      {{"  std::string title; ", "  std::string subtitle = {}; std::string title; "},
       {"virtual Tensor step(std::span<const Tensor> inputs)",
        "virtual Tensor step(std::span<const Tensor> inputs, int more)"},
       {"PluginInterface<", "PluginInterface<1000 + "}}};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(changes[i].second);
    std::string changed = header;
    const std::size_t place = changed.find(changes[i].first);
    REQUIRE(place != std::string::npos);
    changed.replace(place, changes[i].first.size(), changes[i].second);
    folder.file("headers/ops/attention/mechanism.h", changed);
    const std::string other =
        plugin_of(folder, "other" + std::to_string(i), sharp_source(), headers);
    for (const char* program : {"zoo", "charlm"}) {
      check_refused(app(program, {"--plugin", other}),
                    "needs weft::Registration::Registration, which this version of weft does not "
                    "define: it was built with the headers of another version");
    }
  }
}

TEST_CASE("plugin: loaded twice, and together with another") {
  if (skipped()) return;
  const TemporaryFolder folder;
  std::string source = sharp_source();
  for (std::size_t place = 0; (place = source.find("\"sharp\"")) != std::string::npos;) {
    source.replace(place, 7, "\"other\"");
  }
  const std::string other = plugin_of(folder, "other", source);
  std::filesystem::create_symlink(sharp(), folder.path("link.so"));
  const ProgramRun run =
      app("zoo", {"--plugin", sharp(), "--plugin", folder.path("link.so"), "--plugin", other});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "\nsharp "));
  CHECK(contains(run.out, "\nother "));
}

TEST_CASE("plugin: against what is installed, linked with libweft and not") {
  if (skipped()) return;
  const TemporaryFolder folder;
  const ProgramRun install = shell("meson install -C " + quoted(built(".")) +
                                   " --no-rebuild --destdir " + quoted(folder.path("root")));
  REQUIRE_MESSAGE(install.status == 0, install.err);
  const std::string there = "root=" + quoted(folder.path("root")) + "; cd " +
                            quoted(folder.path()) +
                            "; pc=$(find root -name weft.pc); export PKG_CONFIG_PATH=${pc%/*}"
                            " PKG_CONFIG_SYSROOT_DIR=$root; ";
  for (const char* flags : {"--cflags", "--cflags --libs"}) {
    CAPTURE(flags);
    const ProgramRun run =
        shell(there + "g++ -std=c++20 -shared -fPIC " + quoted(tree) +
              "/tests/install/sharp.cpp -o sharp.so $(pkg-config " + flags +
              " weft) && zoo=$(find root -path '*/bin/zoo') && $zoo --plugin sharp.so && " +
              quoted(built("apps/zoo")) + " --plugin sharp.so");
    CHECK_MESSAGE(run.status == 0, run.err);
    const std::size_t first = run.out.find("\nsharp ");
    CHECK(first != std::string::npos);
    CHECK(run.out.find("\nsharp ", first + 1) != std::string::npos);  // installed and built
  }
}

}  // TEST_SUITE("tools")

}  // namespace
