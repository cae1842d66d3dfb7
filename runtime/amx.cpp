#include "runtime/amx.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace weft::amx {

// Linux saves the state of tiles for a process that asks (Documentation/arch/x86/xstate.rst). The
// call fails where the processor or the kernel has none.
bool permitted() {
  constexpr int arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
  static const bool is = syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
  return is;
}

}  // namespace weft::amx
