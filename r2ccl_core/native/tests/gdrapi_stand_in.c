/* A stand-in for GDRCopy's library, for tests without a GPU: the "GPU's memory" is a memfd, which has one mapping at
 * the device's address and others for the processor. The one at the device's address cannot be touched by the processor
 * unless STAND_IN_READABLE is set, which an RDMA device needs that finds memory by its address.
 *
 * It is as strict as the library: whole pages of 64 KiB, and nothing twice. */
#define _GNU_SOURCE

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kMost = 64, kPage = 65536 };

/* An allocation on the "GPU". */
struct block {
  unsigned char *device, *view; /* at the device's address; as the GPU sees it */
  size_t bytes;
  int fd;
};
struct pinned {
  const struct block* block;
  size_t offset, bytes;
  void* mapped;
};
typedef struct {
  unsigned long h;
} handle;
typedef struct {
  uint64_t va, mapped_size;
  uint32_t page_size;
  uint64_t tm_cycles;
  uint32_t cycles_per_ms;
  unsigned mapped : 1, wc_mapping : 1;
} info;

static struct block blocks[kMost];
static int block_count;
static int opened, pinned_count, mapped_count;

void* gdr_open(void) {
  if (getenv("STAND_IN_NO_DEVICE") != NULL) return NULL;
  ++opened;
  return &opened;
}

int gdr_close(void* g) {
  (void)g;
  --opened;
  return 0;
}

int gdr_pin_buffer(void* g, unsigned long address, size_t size, uint64_t token, uint32_t space, handle* out) {
  if (g != &opened || token != 0 || space != 0 || size == 0 || address % kPage != 0 || size % kPage != 0) return EINVAL;
  for (int i = 0; i < block_count; ++i) {
    unsigned long first = (unsigned long)blocks[i].device;
    if (address < first || address + size > first + blocks[i].bytes) continue;
    struct pinned* made = calloc(1, sizeof *made);
    made->block = &blocks[i];
    made->offset = address - first;
    made->bytes = size;
    out->h = (unsigned long)made;
    ++pinned_count;
    return 0;
  }
  return EINVAL; /* no memory of a GPU */
}

int gdr_unpin_buffer(void* g, handle h) {
  struct pinned* gone = (struct pinned*)h.h;
  if (g != &opened || gone->mapped != NULL) return EINVAL;
  free(gone);
  --pinned_count;
  return 0;
}

int gdr_get_info(void* g, handle h, info* out) {
  const struct pinned* of = (struct pinned*)h.h;
  (void)g;
  memset(out, 0, sizeof *out);
  out->va = (uint64_t)(uintptr_t)of->block->device + of->offset;
  out->mapped_size = of->bytes;
  out->page_size = kPage;
  out->mapped = of->mapped != NULL;
  return 0;
}

int gdr_map(void* g, handle h, void** address, size_t size) {
  struct pinned* of = (struct pinned*)h.h;
  if (g != &opened || of->mapped != NULL || size > of->bytes) return EINVAL;
  void* mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, of->block->fd, (off_t)of->offset);
  if (mapped == MAP_FAILED) return errno;
  *address = of->mapped = mapped;
  ++mapped_count;
  return 0;
}

int gdr_unmap(void* g, handle h, void* address, size_t size) {
  struct pinned* of = (struct pinned*)h.h;
  if (g != &opened || of->mapped != address || munmap(address, size) != 0) return EINVAL;
  of->mapped = NULL;
  --mapped_count;
  return 0;
}

/* What a test asks for. */

/* Memory of the "GPU", by the device's address; NULL where there is none. Never given back. */
void* stand_in_alloc(size_t bytes) {
  int readable = getenv("STAND_IN_READABLE") != NULL ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (block_count == kMost) return NULL;
  struct block* made = &blocks[block_count];
  made->bytes = (bytes + kPage - 1) / kPage * kPage;
  made->fd = memfd_create("gpu", MFD_CLOEXEC);
  if (made->fd < 0 || ftruncate(made->fd, (off_t)made->bytes) != 0) return NULL;
  /* At a whole page of the GPU's. */
  unsigned char* room = mmap(NULL, made->bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return NULL;
  room += (kPage - (uintptr_t)room % kPage) % kPage;
  made->device = mmap(room, made->bytes, readable, MAP_SHARED | MAP_FIXED, made->fd, 0);
  made->view = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
  if (made->device == MAP_FAILED || made->view == MAP_FAILED) return NULL;
  ++block_count;
  return made->device;
}

/* What the GPU would read and write at the device's address. */
void* stand_in_view(const void* device) {
  for (int i = 0; i < block_count; ++i) {
    if (blocks[i].device == device) return blocks[i].view;
  }
  return NULL;
}

/* A descriptor of it, as a dmabuf is one. */
int stand_in_fd(const void* device) {
  for (int i = 0; i < block_count; ++i) {
    if (blocks[i].device == device) return blocks[i].fd;
  }
  return -1;
}

/* Handles and mappings that are left. */
int stand_in_left(void) { return pinned_count + mapped_count; }
