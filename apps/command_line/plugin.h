// Mechanisms from outside the tree, in shared objects: --plugin mine.so.
//
//     // mine.cpp
//     #include "ops/attention/mechanism.h"
//     …
//     const weft::Registration registered{weft::Mechanism{.name = "mine", .inputs = …, .attend =
//     …}};
//
//     g++ -std=c++20 -O2 -shared -fPIC mine.cpp -o mine.so $(pkg-config --cflags weft)
//
// From then on `mine` is a mechanism as any other. `pkg-config --libs` does no harm: program and
// plugin take the symbols of one libweft.
#pragma once

#include <string>
#include <vector>

namespace weft {

inline constexpr const char* plugin_help =
    "a shared object with attention mechanisms from outside weft; its code runs";

// Loads a plugin; one that is loaded already is left as it is. Throws, in one line, where the file
// is not there or is no shared object, was built with the headers of another weft, registers
// nothing, or registers a name that is taken.
void load_plugin(const std::string& path);

// Throws where the mechanism of this specification is not known; `source`, a file that names it,
// begins the error, which says how a mechanism from outside is loaded.
void require_mechanism(const std::string& attention, const std::string& source);

}  // namespace weft
