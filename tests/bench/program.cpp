// The benchmark as users run it.
#include "tests/program.h"
#include "bench/results.h"
#include "ops/attention/mechanism.h"
#include "tests/json_lines.h"

using namespace weft;
using namespace weft::bench;

namespace {

const std::string program = built("bench/attention_bench");

ProgramRun bench(const Words& words) {
  return run_program(program, words + Words{"--device", "cpu", "--seconds", "0"});
}

const Words small{"--lengths", "16,8,32", "--heads", "2", "--key-width", "4", "--value-width", "4"};

TEST_SUITE("bench") {

TEST_CASE("attention_bench: every registered mechanism, at every length, with its baselines") {
  const TemporaryFolder folder;
  const ProgramRun run = bench(small + Words{"--no-peers", "--out", folder.path("out")});
  CHECK_MESSAGE(run.status == 0, run.err);
  const Results results(folder.path("out/rows.jsonl"));
  for (const Mechanism* mechanism : mechanisms()) {
    CAPTURE(mechanism->name);
    int rows = 0;
    for (const Row& row : results.lines()) {
      CHECK(row["kind"] == "row");
      const std::string name = row["name"];
      rows += name == mechanism->name || name.rfind(mechanism->name + "/", 0) == 0;
    }
    CHECK(rows == (mechanism->multiple_of.empty() ? 3 : 0));  // no length is whole blocks
  }
  CHECK(contains(run.out, "full (naive)"));
  CHECK(contains(run.out, "time ~ N^"));
  const std::string table = read_file(folder.path("out/rows.csv"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 1 + std::ptrdiff_t(results.lines().size()));
}

TEST_CASE("attention_bench: every row says what was measured, on what, and whether it was tested") {
  const ProgramRun run = bench(small + Words{"--attention", "csp", "--json"});
  REQUIRE(run.status == 0);
  const Row row = Row::parse(run.out.substr(0, run.out.find('\n')));
  for (const char* key : {"forward_ms",
                          "forward_p10_ms",
                          "forward_p90_ms",
                          "backward_ms",
                          "backward_p10_ms",
                          "backward_p90_ms",
                          "saved_bytes",
                          "peak_bytes",
                          "operations",
                          "moved_bytes",
                          "gflops",
                          "gbytes_per_second",
                          "share_of_gemm",
                          "share_of_copy",
                          "share_of_exp",
                          "gemm_gflops",
                          "copy_gbytes_per_second",
                          "exp_gexps",
                          "threads",
                          "isa",
                          "matmul",
                          "device",
                          "commit",
                          "library",
                          "tests"}) {
    CAPTURE(key);
    CHECK(row.contains(key));
  }
  CHECK(row["length"] == 8);
  CHECK(row["forward_p10_ms"] <= row["forward_ms"]);
  CHECK(row["forward_ms"] <= row["forward_p90_ms"]);
}

TEST_CASE("attention_bench: a count of operations that is only at most gives no rates and shares") {
  const ProgramRun run = bench(small + Words{"--attention", "adaptive-span", "--causal", "--json"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const Row row = Row::parse(run.out.substr(0, run.out.find('\n')));
  CHECK(row["operations"] > 0);
  for (const char* key : {"gflops", "gexps", "share_of_gemm", "share_of_exp"}) {
    CHECK_MESSAGE(!row.contains(key), key);
  }
}

TEST_CASE("attention_bench: the same command goes on, other settings begin again") {
  const TemporaryFolder folder;
  const Words words = small + Words{"--attention", "full", "csp", "--out", folder.path()};
  CHECK(contains(bench(words).out, "6 rows measured, 0 kept"));
  const std::string rows = read_file(folder.path("rows.jsonl"));
  folder.file("rows.jsonl", rows.substr(0, rows.size() - 5));
  const ProgramRun again = bench(words);
  CHECK(contains(again.out, "an incomplete last line was removed"));
  CHECK(contains(again.out, "1 rows measured, 5 kept"));
  CHECK(contains(bench(words + Words{"--batch", "2"}).out, "6 rows measured, 0 kept"));
}

TEST_CASE("attention_bench: a layer, blocks, the definition in plain ops, masks") {
  const Words short_one{"--lengths", "8", "--heads", "2", "--key-width", "4", "--value-width", "4"};
  for (const Words& more : {Words{"--layer"}, Words{"--layer", "--causal"}, Words{"--reference"},
                            Words{"--blocks", "2"}, Words{"--causal"}}) {
    const ProgramRun run = bench(short_one + Words{"--no-peers", "--attention", "full"} + more);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "forward"));
  }
  for (const char* mega : {"mega:chunk=3", "mega:attention=laplace,chunk=4"}) {
    const ProgramRun core = bench(short_one + Words{"--no-peers", "--core", "--attention", mega});
    CHECK_MESSAGE(core.status == 0, core.err);
    CHECK(contains(core.out, "forward"));
  }
  check_refused(bench({"--core", "--attention", "mega:attention=csp"}),
                "--core: not mega:attention=csp, it has no q and k");
  const ProgramRun causal = bench(short_one + Words{"--causal", "--no-peers"});
  CHECK(causal.status == 0);
  CHECK(contains(causal.out, "csp: left out, it has no causal form"));
}

TEST_CASE("attention_bench: lengths that are no whole blocks are left out, with a word") {
  const ProgramRun run =
      bench({"--lengths", "12,16", "--heads", "2", "--key-width", "4", "--value-width", "4",
             "--no-peers", "--attention", "sinkhorn:block=8"});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "sinkhorn:block=8: length 12 left out, wanted a multiple of block = 8"));
  CHECK(contains(run.out, "1 rows measured, 0 kept"));
  const ProgramRun none = bench({"--attention", "sinkhorn:block=8", "--lengths", "12"});
  CHECK(none.status == 2);
  CHECK(contains(none.err, "--lengths: none of them is a length of what was to be measured"));
}

TEST_CASE("attention_bench: few queries over as many keys as the length") {
  const TemporaryFolder folder;
  const Words words = small + Words{"--attention", "full", "--out", folder.path()};
  const auto rows = [&](const Words& more) {
    const ProgramRun run = bench(words + more);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "3 rows measured, 0 kept"));  // those of other queries are others
    const std::vector<Row> lines = Results(folder.path("rows.jsonl")).lines();
    REQUIRE(lines.size() >= 3);
    return std::vector<Row>(lines.end() - 3, lines.end());
  };
  const auto all = rows({}), two = rows({"--queries", "2"});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double length = all[i]["length"];
    CHECK(two[i]["length"] == length);
    CHECK(two[i]["operations"].get<double>() * length == 2 * all[i]["operations"].get<double>());
    const double ms = two[i]["forward_ms"].get<double>() + two[i]["backward_ms"].get<double>();
    CHECK(two[i]["ns_per_token"].get<double>() == doctest::Approx(1e6 * ms / 2));
  }
  const ProgramRun again = bench(words + Words{"--queries", "2"});
  CHECK(contains(again.out, "0 rows measured, 3 kept"));
  CHECK(contains(again.out, "time ~ S^"));
  const Row curves = Row::parse(read_file(folder.path("curves.json")));
  CHECK(curves[0]["queries"] == 2);
  CHECK(curves[0]["curves"][0]["points"].size() == 3);
}

TEST_CASE("attention_bench: few queries, of every mechanism that attends across two sequences") {
  const TemporaryFolder folder;
  const ProgramRun run = bench({"--lengths", "16", "--heads", "2", "--key-width", "4",
                                "--value-width", "4", "--queries", "1", "--no-peers", "--out",
                                folder.path()});
  CHECK_MESSAGE(run.status == 0, run.err);
  const Results results(folder.path("rows.jsonl"));
  for (const Mechanism* mechanism : mechanisms()) {
    CAPTURE(mechanism->name);
    const bool measured = std::any_of(
        results.lines().begin(), results.lines().end(),
        [&](const Row& row) { return row["kind"] == "row" && row["name"] == mechanism->name; });
    if (!mechanism->wrapper) {
      CHECK(measured == (mechanism->cross && !mechanism->causal_only));
      CHECK(measured != contains("\n" + run.out, "\n" + mechanism->name + ": left out, it"));
    }
  }
}

TEST_CASE("attention_bench: what no option takes is refused, with the nearest option") {
  check_refused(bench({"--lenghts", "8"}), "there is no option --lenghts; did you mean --lengths?");
  check_refused(bench({"8"}), "'8' follows no option");
}

TEST_CASE("attention_bench: what cannot be measured is told, and the rest goes on") {
  // Blocks have heads of one width.
  const ProgramRun run = bench({"--attention", "full", "--blocks", "1", "--key-width", "8",
                                "--value-width", "4", "--lengths", "8"});
  CHECK(run.status == 1);
  CHECK(contains(run.out, "failed: --blocks: wanted heads of one width"));
  CHECK(contains(run.out, "1 failed"));
}

TEST_CASE("attention_bench: the memory budget holds before anything is allocated") {
  const ProgramRun run =
      bench({"--attention", "full", "--reference", "--lengths", "65536", "--memory", "1"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "left out at this and greater lengths: needs about"));
}

TEST_CASE("attention_bench: Ctrl-C keeps what is done") {
  const TemporaryFolder folder;
  const std::string out = folder.path("out");
  // A row is at most 1,000 runs: at this length, minutes on any machine. The signal is sent once
  // the row has begun, however long the measurement of the ceilings took.
  const ProgramRun run =
      run_program("/bin/sh", {"-c",
                              "\"$@\" >\"$0\" & while kill -0 $! 2>/dev/null && ! grep -q ^1/1 "
                              "\"$0\"; do sleep 0.1; done; "
                              "kill -INT $!; wait $!; status=$?; cat \"$0\"; exit $status",
                              folder.path("shown"), program, "--attention", "full", "--device",
                              "cpu", "--seconds", "600", "--row-seconds", "0", "--heads", "1",
                              "--lengths", "4096", "--out", out});
  CHECK(run.status == 130);
  CHECK(contains(run.out, "interrupted: the same command resumes"));
  CHECK(Results(out + "/rows.jsonl").lines().empty());
}

TEST_CASE("attention_bench: without PyTorch its rows are left out, with a word") {
  const Words short_one{"--lengths", "8", "--heads", "1", "--key-width", "4", "--value-width", "4"};
  for (const std::string python : {"/nowhere/python", "/bin/false"}) {
    const ProgramRun run =
        bench(short_one + Words{"--attention", "full", "--peers", "--python", python});
    CHECK(run.status == 0);
    CHECK(contains(run.out, "PyTorch: left out (" + python));
  }
}

TEST_CASE("attention_bench: another library's rows, and its errors") {
  const TemporaryFolder folder;
  const std::string peer = folder.program(
      "peer",
      "echo '{\"peer\": \"PyTorch\", \"version\": \"2.1.0\", \"forms\": [{\"attention\": 0, "
      "\"form\": \"fused\", \"all_pairs\": false, \"bytes_of_pair\": 0}]}'\n"
      "read line && echo '{\"error\": \"no memory\"}'\n"
      "read line && echo '{\"forward_ms\": 1, \"backward_ms\": 2, \"peak_bytes\": null}'\n");
  const ProgramRun run =
      bench({"--lengths", "8,16", "--heads", "1", "--key-width", "2", "--value-width", "2",
             "--python", peer, "--out", folder.path("out")});
  CHECK(run.status == 1);
  std::vector<Row> rows;
  const Results results(folder.path("out/rows.jsonl"));
  for (const Row& row : results.lines()) {
    if (row["name"] == "PyTorch 2.1.0 (fused)") rows.push_back(row);
  }
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["kind"] == "error");
  CHECK(rows[0]["reason"] == "no memory");
  CHECK(rows[1]["forward_ms"] == 1);
  CHECK(rows[1]["length"] == 16);
}

TEST_CASE("attention_bench: another library's forms stand beside the mechanisms that are named") {
  const TemporaryFolder folder;
  const std::string said = folder.path("said");
  const std::string peer = folder.program(
      "peer",
      "for word; do echo \"$word\" >> " + said +
          "; done\n"
          "echo '{\"peer\": \"PyTorch\", \"version\": \"2.1.0\", \"forms\": ["
          "{\"attention\": 0, \"form\": \"masked\", \"all_pairs\": true, \"bytes_of_pair\": 5},"
          "{\"attention\": 0, \"form\": \"flex\", \"all_pairs\": false, \"bytes_of_pair\": 0},"
          "{\"attention\": 1, \"form\": \"eager\", \"all_pairs\": false, \"bytes_of_pair\": 0}]}'\n"
          "while read line; do echo \"$line\" >> " +
          said +
          "\n"
          "case \"$line\" in *flex*) backward=null;; *) backward=2;; esac\n"
          "echo \"{\\\"forward_ms\\\": 1, \\\"backward_ms\\\": $backward, \\\"peak_bytes\\\": "
          "null}\"\n"
          "done\n");
  const Words words{"--attention", "local:context=4", "linear", "csp", "--peers", "--python", peer,
                    "--lengths", "16,16384", "--heads", "1", "--key-width", "2", "--value-width",
                    "2", "--memory", "0.5", "--out", folder.path("out")};
  const ProgramRun run = bench(words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "PyTorch: csp left out, it has no form here"));
  const std::string told = read_file(said);
  CHECK(contains(told, R"({"mechanism":"local","context":4,"temperature":0.0,"causal":false})"));
  CHECK(contains(told, R"({"mechanism":"linear","feature":"elu","causal":false})"));
  // A dense mask of 16,384² exceeds half a GiB, and is not requested.
  CHECK(contains(told, "0 masked 16\n0 flex 16\n1 eager 16\n0 flex 16384\n1 eager 16384\n"));
  const std::vector<Row> lines = Results(folder.path("out/rows.jsonl")).lines();
  std::vector<std::string> names;
  for (const Row& row : lines) {
    const std::string name = row["name"];
    if (row["length"] == 16) names.push_back(name);
    if (name == "PyTorch 2.1.0 local:context=4 (masked)" && row["length"] == 16384) {
      CHECK(row["kind"] == "cut");
      CHECK(contains(row["reason"], "needs about 1.3 GiB"));
    }
    if (name == "PyTorch 2.1.0 local:context=4 (flex)") {
      CHECK(row["kind"] == "row");
      CHECK(row["backward_ms"].is_null());
    }
  }
  CHECK(names == std::vector<std::string>{
                     "local:context=4", "PyTorch 2.1.0 local:context=4 (masked)",
                     "PyTorch 2.1.0 local:context=4 (flex)", "linear",
                     "PyTorch 2.1.0 linear (eager)", "csp"});
  const ProgramRun again = bench(words);
  CHECK_MESSAGE(contains(again.out, "0 rows measured, 11 kept"), again.out, again.err);
}

TEST_CASE("torch_forms.py: a form that is timed is what its mechanism defines") {
  const std::string pattern = R"("temperature": 0, )";
  const auto local = R"({"mechanism": "local", "context": 9, )" + pattern;
  const auto longformer =
      R"({"mechanism": "longformer", "window": 9, "dilation": 2, "global_tokens": 3, )" + pattern;
  const auto sparse = R"({"mechanism": "sparse", "stride": 12, "summary": 3, )" + pattern;
  const auto block_local = R"({"mechanism": "block-local", "block": 11, )" + pattern;
  const auto performer = R"({"mechanism": "performer", "features": 12, )" + pattern;
  const auto synthesizer = R"({"mechanism": "synthesizer", "rank": 5, "factor": 0, )" + pattern;
  const std::string causal = R"("causal": true})", not_causal = R"("causal": false})";
  const Words specifications = {
      R"({"mechanism": "full", )" + pattern + causal,
      local + not_causal,
      local + causal,
      longformer + not_causal,
      longformer + causal,
      sparse + R"("pattern": "fixed", "combine": "merged", )" + causal,
      sparse + R"("pattern": "strided", "combine": "heads", )" + causal,
      R"({"mechanism": "bigbird", "block": 11, "random": 3, )" + pattern + not_causal,
      block_local + R"("pool": "mean", )" + not_causal,
      block_local + R"("pool": "max", )" + not_causal,
      synthesizer + R"("hidden": 0, "mode": "random", "dot": 1, )" + causal,
      synthesizer + R"("hidden": 0, "mode": "factorized-random", "dot": 0, )" + not_causal,
      synthesizer + R"("hidden": 9, "mode": "dense", "dot": 0, )" + causal,
      synthesizer + R"("hidden": 0, "mode": "factorized-dense", "dot": 1, )" + not_causal,
      R"({"mechanism": "linear", "feature": "elu", )" + not_causal,
      R"({"mechanism": "linear", "feature": "exp", )" + causal,
      R"({"mechanism": "cosformer", "max_length": 0, )" + causal,
      performer + R"("kernel": "softmax", )" + not_causal,
      performer + R"("kernel": "softmax", )" + causal,
      performer + R"("kernel": "hyperbolic", )" + causal,
      performer + R"("kernel": "relu", )" + causal,
      R"({"mechanism": "linformer", "rank": 7, "share_kv": 0, )" + pattern + not_causal,
      R"({"mechanism": "linformer", "rank": 5, "share_kv": 1, )" + pattern + not_causal};
  const ProgramRun run =
      run_program(WEFT_SOURCE_ROOT "/bench/peers/torch_forms.py", specifications);
  if (run.status == 2 && contains(run.err, "PyTorch is not here")) {
    MESSAGE("skipped: " << run.err);
    return;
  }
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const auto rows = lines(run.out);
  CHECK(rows.size() >= specifications.size());
  for (const auto& row : rows) {
    CAPTURE(row);
    CHECK(row["error"].get<double>() < 1e-5);
  }
}

// Runs these lines of Python for the forms of the specifications, with numbers of this type.
ProgramRun torch_forms(const std::string& type, const std::string& lines,
                       const Words& specifications) {
  const std::string all =
      "import json, sys, types\n"
      "sys.path.insert(0, '" WEFT_SOURCE_ROOT
      "/bench/peers')\n"
      "try:\n"
      "    import torch, torch_forms\n"
      "except ImportError as missing:\n"
      "    sys.exit(f'no PyTorch: {missing}')\n"
      "torch.set_default_dtype(getattr(torch, sys.argv[1]))\n"
      "options = types.SimpleNamespace(device='cpu', batch=2, heads=2, queries=0, key_width=4, "
      "value_width=4)\n"
      "for spec in map(json.loads, sys.argv[2:]):\n"
      "    for form in torch_forms.forms_of(spec, options):\n"
      "        " +
      lines;
  ProgramRun run = run_program("python3", Words{"-c", all, type} + specifications);
  if (contains(run.err, "no PyTorch")) MESSAGE("skipped: " << run.err);
  return run;
}

TEST_CASE("torch_forms.py: whose counts a form has, and what it holds in f32 and bf16") {
  const std::string pattern = R"("temperature": 0, "causal": false})";
  const Words specifications = {
      R"({"mechanism": "full", )" + pattern,
      R"({"mechanism": "sinkformer", "iterations": 3, "detach_columns": 0, )" + pattern,
      R"({"mechanism": "synthesizer", "mode": "random", "dot": 0, )" + pattern};
  const auto forms = [](const std::string& type, const Words& some) {
    return torch_forms(
        type, "print(spec['mechanism'], form.name, form.all_pairs, form.bytes_of_pair)\n", some);
  };
  const ProgramRun run = forms("float32", specifications);
  if (contains(run.err, "no PyTorch")) return;
  CHECK_MESSAGE(contains(run.out, "full naive False 48\n"), run.out, run.err);
  CHECK(contains(run.out, "sinkformer naive False 128\n"));
  CHECK(contains(run.out, "synthesizer naive False 48\n"));
  CHECK(contains(forms("bfloat16", specifications).out, "synthesizer naive False 24\n"));
  const Words local = {R"({"mechanism": "local", "context": 9, )" + pattern};
  const std::string masked = forms("float32", local).out;  // none in PyTorch 1.13
  CHECK((masked.empty() || contains(masked, "local masked True 5\n")));
  CHECK(contains(forms("bfloat16", local).out, masked.empty() ? "" : "masked True 3\n"));
}

TEST_CASE("torch_forms.py: masks are made before the time is taken") {
  const ProgramRun run = torch_forms(
      "float32",
      "function, ones = form.make(16), torch.ones\n"
      "        inputs = torch_forms.inputs_of(spec, 16, options, False)\n"
      "        torch.ones = lambda *sizes, **more: sys.exit(f\"{spec['mechanism']}: a mask\")\n"
      "        function(*inputs)\n"
      "        torch.ones = ones\n",
      {R"({"mechanism": "full", "temperature": 0, "causal": true})",
       R"({"mechanism": "synthesizer", "mode": "random", "dot": 0, "hidden": 0, "factor": 0,)"
       R"( "rank": 0, "temperature": 0, "causal": true})",
       R"({"mechanism": "sinkhorn", "block": 4, "iterations": 2, "sort": "attention",)"
       R"( "sort_temperature": 1, "temperature": 0, "causal": true})"});
  if (contains(run.err, "no PyTorch")) return;
  CHECK_MESSAGE(run.status == 0, run.err);
}

TEST_CASE("torch_forms.py: the other forms take the inputs that they are timed on") {
  const std::string sinkhorn =
      R"({"mechanism": "sinkhorn", "block": 4, "iterations": 2, "sort_temperature": 0.75, )"
      R"("temperature": 0, )";
  const std::string mega =
      R"({"mechanism": "mega", "key_width": 5, "states": 3, "value_width": 12, "chunk": 6, )"
      R"("truncation": 0, "attention": "relu2", )";
  const std::string causal = R"("causal": true})", not_causal = R"("causal": false})";
  const ProgramRun run = torch_forms(
      "float32",
      "if not form.compiled:\n"
      "            inputs = torch_forms.inputs_of(spec, 16, options, False)\n"
      "            shape = torch_forms.output_shape(spec, inputs, options)\n"
      "            assert form.make(16)(*inputs).shape == shape, spec\n",
      {R"({"mechanism": "sinkformer", "iterations": 4, "detach_columns": 0, "temperature": 0, )" +
           not_causal,
       sinkhorn + R"("sort": "attention", )" + not_causal,
       sinkhorn + R"("sort": "simple", )" + not_causal,
       sinkhorn + R"("sort": "attention", )" + causal, mega + not_causal, mega + causal});
  if (contains(run.err, "no PyTorch")) return;
  CHECK_MESSAGE(run.status == 0, run.err);
}

TEST_CASE("attention_bench: bad words and files") {
  check_refused(bench({"--attention", "fulll"}), "did you mean full?");
  check_refused(bench({"--seconds", "-1"}), "--seconds: wanted 0 or more, got -1\n");
  check_refused(bench({"--batch", "0"}), "--batch: wanted more than 0, got 0\n");
  check_refused(bench({"--device", "cpu", "cpu"}), "--device: cpu is named twice\n");
  check_refused(bench({"--memory", "nan"}), "--memory: wanted more than 0, got nan\n");
  check_refused(bench({"--threads", "4097"}), "--threads: wanted 1 … 4096, got 4097\n");
  check_refused(bench({"--attention", "csp", "--causal"}), "no causal form");
  check_refused(bench({"--reference"}), "name mechanisms by --attention");
  check_refused(bench({"--attention", "local", "--queries", "1"}),
                "--queries: not local, it cannot attend across two sequences");
  check_refused(bench({"--attention", "segtree", "--layer"}),
                "--layer: not segtree, its rows are not positions");
  const auto learnt = [](const std::string& attention, const Words& words) {
    return bench(small + Words{"--attention", attention, "--learnt"} + words);
  };
  check_refused(learnt("adaptive-span", {"spam=1"}), "--learnt: there is no 'spam'; there are");
  check_refused(learnt("adaptive-span", {"q=1"}), "--learnt: there is no 'q'; there are");
  check_refused(learnt("full", {"span=1"}),
                "--learnt: no mechanism of --attention has a learnt input");
  check_refused(learnt("adaptive-span", {"span=1", "--learnt", "span=0.5"}),
                "--learnt: span occurs twice");
  check_refused(bench({"--queries", "0"}), "--queries");
  for (const Words& other : {Words{"--causal"}, Words{"--layer"}, Words{"--blocks", "1"}}) {
    check_refused(bench(other + Words{"--queries", "1"}), "--queries");
  }
  check_refused(bench({"--peers", "--layer"}), "--peers");
  check_refused(bench({"--peers", "--no-peers"}), "--peers");
  const TemporaryFolder folder;
  const std::string file = folder.file("rows.jsonl", "{\"format\": 7}\n");
  check_refused(bench({"--attention", "full", "--lengths", "8", "--out", folder.path()}),
                file + ":1: rows of format 7");
  check_refused(bench({"--attention", "full", "--lengths", "8", "--out", file}), file);
}

}  // TEST_SUITE("bench")

}  // namespace
