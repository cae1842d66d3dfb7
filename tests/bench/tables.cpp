// The tables of papers, as far as they take no training.
#include "tests/program.h"

using namespace weft;

namespace {

// Runs these lines of Python behind `import papers`; `words` are sys.argv[1:].
ProgramRun papers(const std::string& lines, const Words& words) {
  return run_program("python3", Words{"-c",
                                      "import json, pathlib, signal, sys, types\n"
                                      "sys.path.insert(0, '" WEFT_SOURCE_ROOT "/bench/tables')\n"
                                      "import papers\n" +
                                          lines} +
                                    words);
}

TEST_SUITE("bench") {

TEST_CASE("tables: the commit is that of the programs that completed the runs") {
  const TemporaryFolder folder;
  folder.file("a.json", "{\"step\": 2, \"commit\": \"2222222\", \"result\": []}");
  folder.file("b.json", "{\"step\": 2, \"commit\": \"1111111-dirty\", \"result\": []}");
  folder.file("old.json", "{\"step\": 2, \"result\": []}");
  const auto commits = [&](const std::string& names) {
    return papers("print(papers.commits(map(pathlib.Path, sys.argv[1:])))",
                  {folder.path("a.json"), folder.path(names)});
  };
  const ProgramRun two = commits("b.json");
  if (skipped(two)) return;
  CHECK_MESSAGE(two.status == 0, two.err);
  CHECK(two.out == "1111111-dirty, 2222222\n");
  CHECK(commits("a.json").out == "2222222\n");
  CHECK(commits("old.json").out == "2222222, not recorded\n");
  CHECK(commits("none.json").out == "2222222, not recorded\n");
}

TEST_CASE("tables: Ctrl-C waits for the checkpoint of the training") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("run"));
  // As a training does that Ctrl-C reaches, too: train --out FOLDER.
  folder.program("apps/charlm",
                 "sleep 1\nkill -INT $PPID\nsleep 1\necho saved >\"$3/checkpoint\"\n");
  const ProgramRun run = papers(
      "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
      "options = types.SimpleNamespace(build=pathlib.Path(sys.argv[1]), device='cpu', threads=1)\n"
      "papers.complete(options, 'charlm', options.build / 'run', 'a run', [])\n",
      {folder.path()});
  if (skipped(run)) return;
  CHECK_MESSAGE(run.status == 130, run.err);
  CHECK(std::filesystem::exists(folder.path("run/checkpoint")));
}

TEST_CASE("tables: a log that was cut within a line is that of an unfinished run") {
  const TemporaryFolder folder;
  const std::string test = R"({"kind": "test", "accuracy": null})";
  folder.file("metrics.jsonl", R"({"kind": "train", "step": 10})"
                               "\n" +
                                   test.substr(0, 12));
  const auto tested = [&] {
    return papers("print(papers.tested(pathlib.Path(sys.argv[1])))", {folder.path()});
  };
  const ProgramRun cut = tested();
  if (skipped(cut)) return;
  CHECK_MESSAGE(cut.out == "None\n", cut.err);
  folder.file("metrics.jsonl", test + "\n");
  CHECK(tested().out == "{'kind': 'test', 'accuracy': None}\n");
}

TEST_CASE("tables: a figure that is not finite is said to be so") {
  const ProgramRun run = papers("print(papers.cell([0.5, None]), papers.cell([0.5, 0.7]))", {});
  if (skipped(run)) return;
  CHECK_MESSAGE(run.out == "not finite 0.600 ± 0.100\n", run.err);
}

TEST_CASE("tables: the device by its name, and the threads that were asked for") {
  const TemporaryFolder folder;
  folder.program("apps/devices",
                 "echo 'cpu   AVX2, 64 threads; products by f32 oneDNN'\n"
                 "echo 'cuda  compiled in: cuda'\n"
                 "echo '      0: NVIDIA H200, compute capability 9.0'\n"
                 "echo '      1: NVIDIA A100, compute capability 8.0'\n");
  const auto facts = [&](const std::string& device) {
    return papers(
        "known = papers.facts(types.SimpleNamespace(build=pathlib.Path(sys.argv[1]), "
        "device=sys.argv[2], threads=3))\n"
        "print(known['device'].split('; ', 1)[1], 'by', known['threads'])\n",
        {folder.path(), device});
  };
  const ProgramRun cpu = facts("cpu");
  if (skipped(cpu)) return;
  CHECK_MESSAGE(cpu.out == "cpu AVX2; products by f32 oneDNN by 3\n", cpu.err);
  CHECK(facts("cuda").out == "cuda NVIDIA H200, compute capability 9.0 by 3\n");
  CHECK(facts("cuda:1").out == "cuda:1 NVIDIA A100, compute capability 8.0 by 3\n");
  CHECK(facts("cuda:2").out == "cuda:2 by 3\n");
}

TEST_CASE("zoo: speeds are of the device, threads and commit that measured them") {
  const TemporaryFolder folder;
  folder.program("apps/devices", "echo 'cuda  compiled in: cuda'; echo '      0: NVIDIA H200'\n");
  folder.program("apps/zoo",
                 R"(echo '[{"name": "full", "wrapper": false, "strictly_causal": true, )"
                 R"("in_layers": true, "earlier_keys": false, "decoding": false}]')"
                 "\n");
  folder.program(
      "apps/charlm",
      "case \"$1 $*\" in\n"
      R"(info*) echo '{"configuration": {"attention": "full", "memory": 0}, "parameters": 9}';;)"
      "\n"
      R"(*"--threads 5 --device cuda --dry-run"*) echo '{"targets": 64, "step_seconds": 0.5, )"
      R"("peak_bytes": 1048576, "commit": "2222222"}';;)"
      "\n"
      "*) exit 1;;\nesac\n");
  folder.file("out/full/seed-1/metrics.jsonl", "{\"kind\": \"test\", \"bits_per_character\": 2}\n");
  folder.file("out/full/seed-1/result.json", "{\"commit\": \"1111111\"}");
  const auto table = [&](const std::string& threads) {
    const ProgramRun run =
        run_program(WEFT_SOURCE_ROOT "/bench/tables/zoo",
                    {"--data", "text8", "--out", folder.path("out"), "--build", folder.path(),
                     "--seeds", "1", "--device", "cuda", "--threads", threads});
    CHECK_MESSAGE(run.status == 0, run.err);
    return run.out;
  };
  const std::string measured = table("5"), later = table("6");
  for (const std::string& text : {measured, later}) {
    CHECK(contains(text, "Trained by commit 1111111. "));
    CHECK(contains(text, "; cuda NVIDIA H200, threads 5, commit 2222222, "));
    CHECK(contains(text, "| `full` | 2.000 | 1 | 128 | 1 | – | 9 |"));
  }
}

TEST_CASE("clustered-figure-1: a training that fails ends the figure, and is named") {
  const TemporaryFolder folder;
  folder.program("bench/swap", "exit 3\n");
  folder.program("bench/attention_bench", "exit 4\n");
  folder.file("out/times.json", R"({"measured": {}, "forward_ms": {}})");
  const ProgramRun run =
      run_program(WEFT_SOURCE_ROOT "/bench/tables/clustered-figure-1",
                  {"--data", "text8", "--out", folder.path("out"), "--build", folder.path()});
  if (skipped(run)) return;
  CHECK(run.status == 1);
  CHECK(run.err == "full-1-layers-2048, seed 1: the training did not finish\n");
}

TEST_CASE("carry: a table's settings go with its runs, the data's place does not") {
  const TemporaryFolder folder;
  const std::string settings = "{\"data\": \"builtin\", \"epochs\": 3, \"options\": []}\n";
  const ProgramRun made = papers(
      "import struct\n"
      "try:\n"
      "    import xxhash\n"
      "except ImportError:\n"
      "    sys.exit(127)\n"
      "run = pathlib.Path(sys.argv[1], 'table', 'full', 'seed-1')\n"
      "(run / 'step-1').mkdir(parents=True)\n"
      "header = json.dumps({'__metadata__': {'configuration': '{}'}}).encode()\n"
      "model = struct.pack('<Q', len(header)) + header\n"
      "(run / 'step-1' / 'model.safetensors').write_bytes(model)\n"
      "facts = {'bytes': len(model), 'xxh3': f'{xxhash.xxh3_64_intdigest(model):016x}'}\n"
      "(run / 'step-1' / 'manifest.json').write_text(json.dumps({'step': 1, 'best': None, "
      "'log_bytes': 0, 'files': {'model.safetensors': facts}}))\n"
      "(run / 'metrics.jsonl').write_text('')\n",
      {folder.path()});
  if (skipped(made)) return;
  REQUIRE_MESSAGE(made.status == 0, made.err);
  folder.file("table/settings.json", settings);
  const auto carry = [&](const Words& words) {
    return run_program("python3", Words{WEFT_SOURCE_ROOT "/bench/tables/carry"} + words);
  };
  const std::string packed = folder.path("packed"), there = folder.path("there");
  const ProgramRun pack = carry({"pack", folder.path("table"), packed});
  REQUIRE_MESSAGE(pack.status == 0, pack.err);
  CHECK(!contains(read_file(packed + "/settings.json"), "builtin"));
  const ProgramRun unpack = carry({"unpack", packed, there, "--data", "builtin"});
  REQUIRE_MESSAGE(unpack.status == 0, unpack.err);
  CHECK(read_file(there + "/settings.json") == settings);
  // Another table's folder.
  folder.file("there/settings.json", "{\"data\": \"builtin\", \"epochs\": 4}\n");
  CHECK(contains(carry({"unpack", packed, there, "--data", "builtin"}).err,
                 "holds runs of other settings"));
}

TEST_CASE("tables: numbers, files and programs that are not there are refused in one line") {
  const auto said = [](const std::string& table, const Words& words) {
    const ProgramRun run =
        run_program("python3", Words{WEFT_SOURCE_ROOT "/bench/tables/" + table} + words);
    CHECK(run.status != 0);
    CHECK(!contains(run.err, "Traceback"));
    return run.err;
  };
  const TemporaryFolder folder;
  if (skipped(run_program("python3", {"--version"}))) return;
  const Words to = {"--out", folder.path("table")};
  CHECK(
      contains(said("agglomerative-figure-1", to + Words{"--replicas", "0"}), "wanted 1 or more"));
  CHECK(contains(said("agglomerative-figure-1", to + Words{"--lengths", "abc"}), "--lengths"));
  CHECK(contains(said("tenths", {"--data", folder.path("none"), "run"}), "none: cannot be read"));
  CHECK(contains(said("listops", to + Words{"--data", "x", "--build", folder.path("none")}),
                 "does not exist: meson compile"));
  CHECK(!std::filesystem::exists(folder.path("table")));
}

}  // TEST_SUITE("bench")

}  // namespace
