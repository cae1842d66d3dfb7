// `export` of charlm, wordlm and vision.
#include <optional>

#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "nn/npy.h"
#include "nn/universal_transformer.h"
#include "tests/check.h"
#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

void require_done(const ProgramRun& run) { REQUIRE_MESSAGE(run.status == 0, run.err); }

const Words charlm_train = {"train", "--steps", "2", "--width", "16", "--heads", "2", "--length",
                            "12", "--test-batches", "1", "--validation-batches", "1"};

// Exports a small training, and compares the example with a model of these weights.
void check_example(const Words& precision) {
  const TemporaryFolder folder;
  require_done(
      app("charlm", charlm_train + precision + Words{"--out", folder.path("run"), "--quiet"}));
  require_done(app("charlm", {"export", "--checkpoint", folder.path("run"), "--example", "--out",
                              folder.path("x")}));
  Checkpoint exported = read_checkpoint(folder.path("x"));
  const Tensor input = exported.tensors.at("example.input");
  const Tensor logits = exported.tensors.at("example.logits");
  const Tensor exact = exported.tensors.at("example.logits_f64");
  exported.tensors.erase("example.input"), exported.tensors.erase("example.logits");
  exported.tensors.erase("example.logits_f64");
  const auto settings = nlohmann::json::parse(exported.metadata.at("configuration"));
  UniversalTransformer network({.width = 16,
                                .depth = settings["depth"],
                                .heads = 2,
                                .length = 12,
                                .attention = settings["attention"],
                                .encoding = settings["encoding"],
                                .conv_width = settings["conv-width"],
                                .act = settings["act"],
                                .wiring = settings["wiring"],
                                .shared = settings["shared"]},
                               7);
  load_tensors(tensors(network), exported.tensors, "x");
  Context context = Context::evaluation();
  CHECK(input.shape() == Shape{2, 12});
  CHECK(same_bits(network(context, input).logits.value(), logits));
  const std::vector<float> rounded = logits.to_vector<float>();
  const std::vector<double> wide = exact.to_vector<double>();
  REQUIRE(rounded.size() == wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    CHECK(std::abs(double(rounded[i]) - wide[i]) < 1e-5);
  }
}

}  // namespace

TEST_SUITE("tools") {

TEST_CASE("export: the parameters of each app, in either format") {
  const std::pair<const char*, Words> trainings[] = {
      {"charlm", charlm_train},
      {"wordlm", {"train", "--steps", "2", "--width", "16", "--heads", "2", "--length", "12"}},
      {"vision", {"train", "--steps", "2", "--width", "16", "--heads", "2", "--layers", "1"}}};
  for (const auto& [name, words] : trainings) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string file = folder.path("out.safetensors"), arrays = folder.path("out");
    const Words exported = {"export", "--checkpoint", folder.path("run"), "--out"};
    require_done(app(name, words + Words{"--out", folder.path("run"), "--quiet"}));
    require_done(app(name, exported + Words{file}));
    require_done(app(name, exported + Words{arrays, "--format", "npy", "--example"}));
    // Further data of a training is not part of it.
    const Checkpoint trained = read_checkpoint(folder.path("run/best.safetensors"));
    const Checkpoint alone = read_checkpoint(file);
    CHECK(alone.metadata.at("configuration") == trained.metadata.at("configuration"));
    CHECK_FALSE(alone.metadata.contains("step"));
    CHECK(nlohmann::json::parse(read_file(arrays + "/metadata.json")) == alone.metadata);
    REQUIRE(alone.tensors.size() > 10);
    for (const auto& [parameter, tensor] : alone.tensors) {
      CAPTURE(parameter);
      REQUIRE(trained.tensors.contains(parameter));
      CHECK(same_bits(tensor, trained.tensors.at(parameter)));
      CHECK(same_bits(tensor, read_npy(arrays + "/" + parameter + ".npy")));
    }
    // The file is a checkpoint again.
    const ProgramRun info = app(name, {"info", "--checkpoint", file, "--json"});
    require_done(info);
    CHECK(lines(info.out)[0]["parameters"] ==
          lines(app(name, {"info", "--checkpoint", folder.path("run"), "--json"}).out)[0]
               ["parameters"]);
    CHECK(read_npy(arrays + "/example.logits.npy").size(0) == 2);
    // With the example, too.
    const std::string with_example = folder.path("example.safetensors");
    require_done(app(name, exported + Words{with_example, "--example"}));
    CHECK(app(name, {"info", "--checkpoint", with_example, "--json"}).out == info.out);
  }
}

TEST_CASE("export: the example is what the weights give in f32, after a training in bf16, too") {
  check_example({});
  check_example({"--precision", "bf16"});
}

// The output of torch_export.py for these files; nothing without PyTorch.
std::optional<ProgramRun> torch_export(const Words& files) {
  const ProgramRun run = run_program(WEFT_SOURCE_ROOT "/bench/peers/torch_export.py", files);
  if (run.status != 2 || !contains(run.err, "PyTorch is not here")) return run;
  MESSAGE("skipped: " << run.err);
  return {};
}

TEST_CASE("export: PyTorch makes the same logits of every app's models" * not_sanitized()) {
  const TemporaryFolder folder;
  const Words language = {"--steps",  "4",  "--width", "24", "--heads", "2",
                          "--length", "12", "--depth", "3",  "--batch", "4"};
  const Words pictures = {"--steps", "4", "--width", "24", "--heads",  "2", "--layers", "3",
                          "--patch", "8", "--batch", "4",  "--hidden", "20"};
  const std::vector<std::pair<const char*, Words>> models = {
      {"charlm", {"--attention", "full", "--encoding", "position", "--act"}},
      {"charlm", {"--attention", "topk:topk=3", "--no-shared", "--wiring", "vanilla"}},
      {"charlm", {"--attention", "shared-full:normalize_keys=1,temperature=0.7"}},
      {"wordlm", {"--attention", "agglomerative", "--no-shared", "--act", "--conv-width", "3"}},
      {"wordlm", {"--attention", "conditional:length=5/topk:topk=2", "--encoding", "position"}},
      {"wordlm", {"--attention", "shared-full", "--wiring", "vanilla", "--act"}},
      {"wordlm", {"--attention", "full", "--wiring", "prenorm", "--hidden", "7", "--act"}},
      {"charlm", {"--attention", "full", "--encoding", "rotary", "--wiring", "prenorm"}},
      {"wordlm", {"--attention", "topk:topk=3", "--encoding", "rotary", "--no-shared"}},
      {"vision", {"--attention", "full:temperature=0.3", "--value-width", "6"}},
      {"vision", {"--attention", "agglomerative"}},
      {"vision", {"--attention", "conditional:length=100/topk:topk=3"}},
      {"vision", {"--attention", "csp", "--value-width", "38"}},
      {"vision", {"--attention", "csp:shift=power,rule=code,group=3,order=descending"}},
      {"vision", {"--attention", "csp:preset=released,shift=power"}},
      {"vision", {"--attention", "csp:sinkhorn=3,temperature=0.4,group=5"}},
      {"vision", {"--attention", "csp-shift:shift=head"}},
      {"vision", {"--attention", "csp-sort:groups=3"}},
      {"vision", {"--attention", "clustered:clusters=5,bits=9,iterations=3"}},
      {"vision", {"--attention", "clustered:clusters=6,hash_bias=0,bits=63,temperature=0.4"}},
      {"vision", {"--attention", "i-clustered:clusters=4,topk=3,iterations=2"}},
      {"vision", {"--attention", "conditional:length=5/i-clustered:clusters=6,topk=40"}},
      {"charlm", {"--attention", "i-clustered-causal:clusters=3,topk=5", "--allow-leaky"}},
      {"wordlm",
       {"--attention", "i-clustered-causal:clusters=3,topk=4", "--allow-leaky", "--encoding",
        "rotary", "--wiring", "prenorm"}},
      {"vision", {"--attention", "lsh:rounds=2,chunk=4,buckets=6,self=exclude,wrap=1"}},
      {"vision", {"--attention", "lsh"}},
      {"charlm",
       {"--attention", "lsh:rounds=3,chunk=4,buckets=4,self=last,normalize_keys=0", "--allow-leaky",
        "--encoding", "position", "--wiring", "prenorm"}},
      {"charlm",
       {"--attention",
        "lsh:rounds=2,chunk=3,buckets=6,combine=logsumexp,wrap=1,"
        "self=last,across_buckets=0,duplicates=correct",
        "--allow-leaky", "--no-shared", "--wiring", "vanilla"}},
      {"wordlm",
       {"--attention", "lsh:chunk=5,buckets=4,combine=logsumexp,duplicates=correct",
        "--allow-leaky", "--encoding", "position", "--act"}},
      {"wordlm", {"--attention", "local:context=5,temperature=0.4"}},
      {"vision", {"--attention", "local:context=8"}},
      {"charlm", {"--attention", "longformer:window=2,global_tokens=3,dilation=2"}},
      {"charlm", {"--attention", "longformer:window=3,global_tokens=0", "--encoding", "rotary"}},
      {"vision", {"--attention", "longformer:window=3,dilation=2"}},
      {"charlm", {"--attention", "sparse:stride=5,summary=2,combine=heads"}},
      {"wordlm", {"--attention", "sparse:pattern=strided,stride=3", "--no-shared"}},
      {"vision", {"--attention", "bigbird:block=1,random=6"}},
      {"vision", {"--attention", "conditional:length=5/bigbird:block=3,random=1"}},
      {"vision", {"--attention", "block-local:block=5"}},
      {"vision", {"--attention", "block-local:block=7,pool=max"}},
      {"charlm", {"--attention", "linear:feature=exp"}},
      {"vision", {"--attention", "sinkformer"}},
      {"vision", {"--attention", "sinkformer:iterations=4,temperature=0.7"}},
      {"charlm", {"--attention", "synthesizer"}},
      {"wordlm", {"--attention", "synthesizer:mode=factorized-random,rank=5", "--no-shared"}},
      {"charlm", {"--attention", "synthesizer:mode=dense,hidden=7"}},
      {"vision", {"--attention", "synthesizer:mode=factorized-dense,factor=3"}},
      {"charlm", {"--attention", "synthesizer:dot=1,temperature=0.3", "--encoding", "rotary"}},
      {"vision", {"--attention", "synthesizer:mode=factorized-dense,dot=1"}},
      {"vision", {"--attention", "sinkhorn:block=4"}},
      {"vision", {"--attention", "sinkhorn:block=2,sort=simple,iterations=3"}},
      {"charlm", {"--attention", "sinkhorn:block=3"}},
      {"vision", {"--attention", "linear"}},
      {"charlm", {"--attention", "cosformer:max_length=1000"}},
      {"charlm", {"--attention", "adaptive-span:max_span=9,ramp=3", "--no-shared"}},
      {"wordlm", {"--attention", "adaptive-span", "--encoding", "rotary"}},
      {"charlm", {"--attention", "transformer-xl:clamp=5", "--encoding", "conv"}},
      {"wordlm", {"--attention", "transformer-xl:position_width=6", "--no-shared"}},
      {"charlm", {"--attention", "mega:key_width=5,truncation=4", "--wiring", "prenorm"}},
      {"wordlm", {"--attention", "mega:attention=laplace,chunk=5,states=3", "--no-shared"}},
      {"vision", {"--attention", "mega:attention=relu2"}},
      {"vision", {"--attention", "mega:attention=csp,csp_shift=power,csp_group=3,value_width=6"}},
      {"vision", {"--attention", "mega:attention=csp,csp_shift=head,value_width=16"}},
      {"vision", {"--attention", "isab:points=3,width=20"}},
      {"vision", {"--attention", "isab:norm=1,temperature=0.7"}},
      {"vision", {"--attention", "star:steps=3"}},
      {"vision", {"--attention", "star:heads=1,head_width=5,ends=zero"}},
      {"vision", {"--attention", "biblosa"}},
      {"vision", {"--attention", "biblosa:block=3,width=7,activation=relu"}},
      {"vision", {"--attention", "biblosa:direction=backward,activation=linear"}},
      {"vision", {"--attention", "cosformer"}},
      {"wordlm", {"--attention", "performer:redraw=2", "--no-shared"}},
      {"charlm", {"--attention", "performer:kernel=relu,features=7"}},
      {"vision", {"--attention", "performer:kernel=hyperbolic"}},
      {"vision", {"--attention", "performer:features=30,orthogonal=0"}},
      {"vision", {"--attention", "linformer:rank=5,temperature=0.3"}},
      {"vision", {"--attention", "linformer:share_kv=1"}}};
  Words files;
  for (const auto& [name, words] : models) {
    CAPTURE(words[1]);
    const std::string run = folder.path("run" + std::to_string(files.size()));
    const Words size = name == std::string("vision") ? pictures : language;
    Words tests;
    if (name == std::string("charlm")) {
      tests = {"--validation-batches", "1", "--test-batches", "1"};
    }
    require_done(app(name, Words{"train", "--out", run, "--quiet"} + size + words + tests));
    files.push_back(run + ".safetensors");
    require_done(app(name, {"export", "--checkpoint", run, "--example", "--out", files.back()}));
  }
  const auto checked = torch_export(files);
  if (!checked) return;
  REQUIRE_MESSAGE(checked->status == 0, checked->err << checked->out);
  const auto rows = lines(checked->out);
  REQUIRE(rows.size() == files.size());
  for (const auto& row : rows) {
    CAPTURE(row["file"]);
    CHECK(row["error"].get<double>() < 1e-10);
    CHECK(row["error_f32"].get<double>() < 1e-5);
    CHECK(row["largest"].get<double>() > 0.01);
  }
}

TEST_CASE("export: what has no form in PyTorch is refused in a line that names it") {
  const TemporaryFolder folder;
  const std::string file = folder.path("x.safetensors");
  require_done(app("vision", {"train", "--steps", "1", "--width", "8", "--heads", "1", "--layers",
                              "1", "--out", folder.path("run"), "--quiet"}));
  require_done(app("vision", {"export", "--checkpoint", folder.path("run"), "--out", file}));
  // A mechanism from outside the tree.
  Checkpoint contents = read_checkpoint(file);
  auto architecture = nlohmann::json::parse(contents.metadata.at("architecture"));
  architecture["attention"] = {{"mechanism", "own"}};
  contents.metadata["architecture"] = architecture.dump();
  write_checkpoint(contents, folder.path("own"));
  const auto run = torch_export({folder.path("own")});
  if (!run) return;
  const auto check = [](ProgramRun refused, const std::string& part) {
    refused.program = "torch_export";
    check_refused(refused, part);
  };
  check(*run, "own: attention own has no form in PyTorch here; there are full, ");
  check(*torch_export({folder.file("none", "no tensors")}), "is not a file of `export`");
  check(*torch_export({folder.path("nowhere")}), "cannot be read: No such file");
  check(*torch_export({folder.path("run/best.safetensors")}),
        "its metadata has no architecture; export the checkpoint again");
  // Weights and metadata of two models.
  architecture["attention"] = {{"mechanism", "full"}, {"temperature", 0}};
  architecture["width"] = 9;
  contents.metadata["architecture"] = architecture.dump();
  write_checkpoint(contents, folder.path("other"));
  check(*torch_export({folder.path("other")}), "its weights and its architecture do not fit");
}

TEST_CASE("export: bad input is refused in a line, and nothing is overwritten") {
  const TemporaryFolder folder;
  require_done(app("charlm", charlm_train + Words{"--out", folder.path("run"), "--quiet"}));
  const Words exported = {"export", "--checkpoint", folder.path("run"), "--out"};
  const std::string there = folder.file("there", "kept");
  check_refused(app("charlm", exported + Words{there}), "there: exists already");
  CHECK(read_file(there) == "kept");
  check_refused(app("charlm", exported + Words{folder.path("run"), "--format", "npy"}),
                "exists already");
  check_refused(app("charlm", exported + Words{folder.path("x"), "--format", "pickle"}),
                "there is no 'pickle'");
  check_refused(app("charlm", exported + Words{folder.path("no/such/x")}), "cannot be created");
  check_refused(app("charlm", {"export", "--checkpoint", "/nowhere", "--out", folder.path("x")}),
                "/nowhere: cannot be opened");
  CHECK_FALSE(std::filesystem::exists(folder.path("x")));
}

}  // TEST_SUITE
