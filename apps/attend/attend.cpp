// attend: runs attention mechanisms on tensors from a file.
//
//     attend --attention i-clustered:clusters=25 --in qkv.safetensors --out result.safetensors
//     attend --attention full --in qkv.safetensors --layout bhne --map map.png --head 0-3
//     attend --pattern mask.npy --pattern-block 64 --in qkv.safetensors --out result.safetensors
//     attend --compare full,topk:topk=16,clustered:clusters=25 --in qkv.safetensors --out table.png
//
// The input file holds the mechanism's inputs under their names (`zoo NAME` lists them: for most
// mechanisms q [B,N,H,E], k [B,S,H,E], v [B,S,H,M]), optionally `lengths` and `query_lengths` [B],
// and optionally the choices that the mechanism would otherwise draw or compute. The output file
// gets `out`, all choices and, with --backward and `dout` in the input file, the gradient of every
// input x as `dx`. Mechanisms that concatenate their heads (agglomerative, csp) also accept heads
// and width as one axis. Names and shapes of the tensors read and written are printed to stdout.
// With --layout bhne inputs, out and gradients have PyTorch's layout [B,H,N,E]; choices always
// have the layout that `zoo NAME` shows.
//
// --compare runs several mechanisms on one file and prints a table of their errors relative to the
// first one, their forward time and their memory; with --out FILE.png it also draws the table.
// Missing inputs of a mechanism are derived from those in the file and reported (derive.h).
//
// Exit status: 0 on success; 2 for bad input, with one line on stderr and no file written.
#include <cstdio>
#include <filesystem>

#include <fmt/core.h>

#include "apps/attend/call.h"
#include "apps/attend/compare.h"
#include "apps/command_line/attention_map.h"
#include "apps/command_line/options.h"
#include "apps/command_line/output.h"
#include "nn/checkpoint.h"
#include "runtime/listed.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

void add_options(const Options& app, AttendCommand& command) {
  const Option attention = app.add_option("--attention", command.attention,
                                                "a mechanism, as name:option=value,option=value")
                                     .show_default();
  const Option compared =
      app.add_option("--compare", command.compare,
                     "comma-separated mechanisms, name:option=value,option=value,name; errors are "
                     "relative to the first");
  compared.excludes(attention);
  app.add_option("--in", command.in,
                 "the inputs: a safetensors file, or a folder of .npy files named after them; f16 "
                 "is converted to f32")
      .required();
  app.add_option("--layout", command.layout,
                 "layout of inputs, out and gradients: bnhe, [batch, positions, heads, width], or "
                 "PyTorch's bhne, [batch, heads, positions, width]")
      .show_default();
  const Option out = app.add_option("--out", command.out,
                                    "safetensors file to write; with --compare a picture, .png");
  app.add_option("--dtype", command.dtype, "f32 or f64; default: the type of the inputs")
      .one_of({"f32", "f64"});
  app.add_option("--device", command.device, "cpu, cuda or cuda:N").show_default();
  app.add_flag("--causal", command.causal, "query i sees keys up to i");
  const Option pattern =
      app.add_option("--pattern", command.pattern,
                     "a .npy file with a mask for full: a query sees the keys where it is not 0; "
                     "[queries, keys], [heads, queries, keys] or [batch, heads, queries, keys]");
  pattern.excludes(compared);
  app.add_option("--pattern-block", command.pattern_block,
                 "side of the block of positions that an element of --pattern covers")
      .positive()
      .show_default()
      .needs(pattern);
  app.add_option("--seed", command.seed, "seed of the mechanism's random choices")
      .non_negative()
      .show_default();
  app.add_flag("--backward", command.backward,
               "also write gradients, for the cotangent dout in the file")
      .needs(out)
      .excludes(compared);
  const Option map =
      app.add_option("--map", command.map, "write attention matrices: .png or .safetensors");
  map.excludes(compared);
  app.add_option("--head", command.head, "heads for --map: 0,2-3 or all").show_default().needs(map);
  app.add_option("--item", command.item, "batch item for --map").show_default().needs(map);
  app.add_option("--scale", command.scale,
                 "colour scale of --map: linear, sqrt, log, or row (relative to each query's "
                 "largest weight)")
      .show_default()
      .needs(map);
  add_plugin_option(app);
  app.add_flag("--force", command.force, "replace existing files");
  app.add_option("--threads", command.threads, "number of threads; default: one per core")
      .between(1, 4096);
}

void check_place(const std::string& path, bool force) {
  if (path.empty()) return;
  require(force || !std::filesystem::exists(path), "{}: exists already; --force replaces it", path);
  require_folder_for(path);
}

void write_map_of(const Call& call, const AttendCommand& command) {
  MapPicture picture{.title = fmt::format("{}{}, item {}", call.spec().text(),
                                          command.causal ? ", causal" : "", command.item),
                     .heads = heads_named(command.head, call.sizes().H, "--head"),
                     .scale = command.scale};
  write_maps(call.maps(command.item, picture.heads), picture, command.map);
}

void say(const Call& call, const AttendCommand& command,
         const std::map<std::string, Tensor>& results) {
  const AttentionSizes sizes = call.sizes();
  fmt::print("read {}: {}, {}\n", command.in, described(call.spec(), sizes), name_of(call.type()));
  const std::string doubt = layout_doubt(sizes, layout_named(command.layout));
  if (!doubt.empty()) fmt::print("     {}\n", doubt);
  if (!command.out.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : results)
      names.push_back(fmt::format("{} {}", name, tensor.shape()));
    fmt::print("wrote {}: {}\n", command.out, listed(names));
  }
  if (!command.map.empty()) fmt::print("wrote {}: head {}\n", command.map, command.head);
}

int run(int argc, char** argv) {
  AttendCommand command;
  Program app("Runs attention mechanisms on tensors of a file.", "attend");
  add_options(app, command);
  if (const auto status = app.parse(argc, argv)) return *status;
  const bool comparing = !command.compare.empty();
  require(comparing || !command.out.empty() || !command.map.empty(),
          "wanted --out or --map: nothing to write");
  check_place(command.out, command.force);
  check_place(command.map, command.force);
  check_scale(command.scale);
  require(command.map.empty() || command.map != command.out,
          "--map and --out are the same file: {}", command.out);
  if (command.threads > 0) set_threads(command.threads);
  if (comparing) return compare(command);
  Call call(command);
  const Checkpoint results{call.run(command), {{"attention", call.spec().text()}}};
  if (!command.map.empty()) write_map_of(call, command);
  if (!command.out.empty()) write_checkpoint(results, command.out);
  say(call, command, results.tensors);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run_main("attend", weft::run, argc, argv); }
