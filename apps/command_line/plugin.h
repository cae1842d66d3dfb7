// Mechanisms in shared objects, loaded by --plugin mine.so.
//
//     // mine.cpp
//     #include "ops/attention/mechanism.h"
//     …
//     const weft::Registration registered{weft::Mechanism{
//         .name = "mine", .inputs = …, .attend = …}};
//
//     g++ -std=c++20 -O2 -shared -fPIC mine.cpp -o mine.so $(pkg-config --cflags weft)
//
// `mine` is then available like a built-in mechanism. Linking with `pkg-config --libs weft` is
// allowed: program and plugin resolve to the same libweft.
#pragma once

#include <string>
#include <vector>

namespace weft {

inline constexpr const char* plugin_help =
    "a shared object with further attention mechanisms; its code is run";

// Loads a plugin; does nothing if it is loaded already. Throws, with a message of one line, if the
// file does not exist or is not a shared object, was built with the headers of another version of
// weft, registers nothing, or registers a name that is taken.
void load_plugin(const std::string& path);

// Throws if the mechanism of this specification is unknown. The error begins with `source`, the
// file that names the mechanism, and explains how to load a plugin.
void require_mechanism(const std::string& attention, const std::string& source);

}  // namespace weft
