// Messages as programs print them.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// `message` as one line for a terminal. What is not printable becomes an escape: \n, \x1b, and \xNN
// for every byte that is not UTF-8. A word of more than 200 characters, and then a line of more
// than 1,500, keeps its beginning and its end around an ellipsis: the values that a message quotes
// come from command lines and files.
std::string one_line(std::string_view message);

}  // namespace weft
