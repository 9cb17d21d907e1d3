// The empty library: its file, and how it is loaded without one on disk.
#include "plugin/second_name.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/socket.h"

// The header of this library's own file, by which the empty one is for the same machine. The linker defines it.
extern "C" __attribute__((visibility("hidden"))) const ElfW(Ehdr) __ehdr_start;

// Exported by this library (nics_left.cc).
extern "C" int r2cclNicsLeft(int* total, int* left);

namespace r2ccl::plugin {
namespace {

constexpr ElfW(Word) kPageBytes = 65536;  // the largest page of any machine

enum Segment { kLoad, kDynamic, kStack, kSegments };

// The whole file, one segment that can be read and written, as the linker relocates the dynamic section in place. No
// symbol but the empty one, which every table of symbols begins with.
struct Image {
  ElfW(Ehdr) header;
  ElfW(Phdr) segments[kSegments];
  ElfW(Dyn) dynamic[8];
  ElfW(Sym) symbol;
  uint32_t hash[4];
};

ElfW(Phdr) MakeSegment(ElfW(Word) type, size_t offset, size_t bytes, size_t align) {
  ElfW(Phdr) segment = {};
  segment.p_type = type;
  segment.p_flags = PF_R | PF_W;
  segment.p_offset = segment.p_vaddr = segment.p_paddr = offset;
  segment.p_filesz = segment.p_memsz = bytes;
  segment.p_align = align;
  return segment;
}

ElfW(Dyn) MakeEntry(int64_t tag, uint64_t value) {
  ElfW(Dyn) entry = {};
  entry.d_tag = tag;
  entry.d_un.d_val = value;
  return entry;
}

// Whether what `library` shows under our export's name is ours.
bool IsThisPlugin(void* library) { return dlsym(library, "r2cclNicsLeft") == reinterpret_cast<void*>(&r2cclNicsLeft); }

std::string Because(const char* reason) { return reason == nullptr ? "no reason given" : reason; }

Status LoadFromMemory(const std::string& file) {
  Fd memory(memfd_create(kDefaultName, MFD_CLOEXEC));
  if (!memory.valid() || write(memory.get(), file.data(), file.size()) != static_cast<ssize_t>(file.size())) {
    return {Code::kSystem, std::string("memfd: ") + std::strerror(errno)};
  }
  // Never closed: it keeps the name.
  void* library = dlopen(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? Status(Code::kSystem, Because(dlerror())) : Status();
}

}  // namespace

std::string EmptyLibrary(const std::string& name, const std::string& needed) {
  std::string names = std::string(1, '\0') + name + '\0' + needed + '\0';
  Image image = {};
  std::memcpy(image.header.e_ident, __ehdr_start.e_ident, EI_NIDENT);
  image.header.e_type = ET_DYN;
  image.header.e_machine = __ehdr_start.e_machine;
  image.header.e_version = EV_CURRENT;
  image.header.e_flags = __ehdr_start.e_flags;
  image.header.e_phoff = offsetof(Image, segments);
  image.header.e_ehsize = sizeof(ElfW(Ehdr));
  image.header.e_phentsize = sizeof(ElfW(Phdr));
  image.header.e_phnum = kSegments;
  image.segments[kLoad] = MakeSegment(PT_LOAD, 0, sizeof(Image) + names.size(), kPageBytes);
  image.segments[kDynamic] =
      MakeSegment(PT_DYNAMIC, offsetof(Image, dynamic), sizeof image.dynamic, alignof(ElfW(Dyn)));
  image.segments[kStack] = MakeSegment(PT_GNU_STACK, 0, 0, 16);  // without it the stack would become executable
  const ElfW(Dyn) entries[] = {
      MakeEntry(DT_SONAME, 1),
      MakeEntry(DT_NEEDED, 1 + name.size() + 1),
      MakeEntry(DT_HASH, offsetof(Image, hash)),
      MakeEntry(DT_SYMTAB, offsetof(Image, symbol)),
      MakeEntry(DT_SYMENT, sizeof(ElfW(Sym))),
      MakeEntry(DT_STRTAB, sizeof(Image)),
      MakeEntry(DT_STRSZ, names.size()),
      MakeEntry(DT_NULL, 0),
  };
  static_assert(sizeof entries == sizeof image.dynamic);
  std::memcpy(image.dynamic, entries, sizeof entries);
  image.hash[0] = image.hash[1] = 1;  // one bucket and one symbol, which ends the chain
  return std::string(reinterpret_cast<const char*>(&image), sizeof image) + names;
}

Status TakeDefaultName() {
  void* holder = dlopen(kDefaultName, RTLD_LAZY | RTLD_NOLOAD);
  if (holder == nullptr) {
    Status status = LoadFromMemory(EmptyLibrary(kDefaultName, kOwnName));
    if (!status.ok()) return status;
    holder = dlopen(kDefaultName, RTLD_LAZY | RTLD_NOLOAD);
    if (holder == nullptr) return {Code::kSystem, "the dynamic linker does not know the library by its name"};
  }
  bool ours = IsThisPlugin(holder);
  dlclose(holder);
  return ours ? Status() : Status(Code::kSystem, std::string("another library is loaded as ") + kDefaultName);
}

}  // namespace r2ccl::plugin
