// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What an ELF file says of itself.  It may be anyone's, and say anything: no number of it is believed. */
#include "progrun.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DYN		4096u	/* entries that are looked at; programs have some 30 */
#define MAX_NAMES	(1u << 28)	/* bytes of names of symbols */

struct file {
	int fd;
	bool wide;			/* ELFCLASS64 */
	Elf64_Ehdr eh;
};

/* Exactly @len bytes at @off. */
static bool read_at(int fd, void *buf, size_t len, uint64_t off)
{
	return off <= INT64_MAX && pread(fd, buf, len, (off_t)off) == (ssize_t)len;
}

static bool read_header(struct file *f)
{
	unsigned char ident[EI_NIDENT];
	Elf32_Ehdr h;

	if (!read_at(f->fd, ident, sizeof(ident), 0) || memcmp(ident, ELFMAG, SELFMAG) != 0)
		return false;
	f->wide = ident[EI_CLASS] == ELFCLASS64;
	if (f->wide)
		return read_at(f->fd, &f->eh, sizeof(f->eh), 0) && f->eh.e_phentsize == sizeof(Elf64_Phdr);
	f->eh = (Elf64_Ehdr){ 0 };
	if (!read_at(f->fd, &h, sizeof(h), 0) || h.e_phentsize != sizeof(Elf32_Phdr))
		return false;
	f->eh.e_phoff = h.e_phoff;
	f->eh.e_phnum = h.e_phnum;
	return true;
}

static bool read_segment(const struct file *f, unsigned int i, Elf64_Phdr *ph)
{
	Elf32_Phdr h;

	if (f->wide)
		return read_at(f->fd, ph, sizeof(*ph), f->eh.e_phoff + i * sizeof(*ph));
	if (!read_at(f->fd, &h, sizeof(h), f->eh.e_phoff + i * sizeof(h)))
		return false;
	*ph = (Elf64_Phdr){
		.p_type = h.p_type, .p_offset = h.p_offset, .p_vaddr = h.p_vaddr, .p_filesz = h.p_filesz,
	};
	return true;
}

static bool read_dyn(const struct file *f, uint64_t off, unsigned int i, Elf64_Dyn *d)
{
	Elf32_Dyn h;

	if (f->wide)
		return read_at(f->fd, d, sizeof(*d), off + i * sizeof(*d));
	if (!read_at(f->fd, &h, sizeof(h), off + i * sizeof(h)))
		return false;
	*d = (Elf64_Dyn){ .d_tag = h.d_tag, .d_un.d_val = h.d_un.d_val };
	return true;
}

/* The first segment of @type; or, of those that are loaded, the one that has the address @at. */
static bool find_segment(const struct file *f, uint32_t type, uint64_t at, Elf64_Phdr *ph)
{
	for (unsigned int i = 0; i < f->eh.e_phnum; i++) {
		if (!read_segment(f, i, ph))
			return false;
		if (ph->p_type == type && (type != PT_LOAD || (at >= ph->p_vaddr && at - ph->p_vaddr < ph->p_filesz)))
			return true;
	}
	return false;
}

/* The text at @off, which ends within @size bytes. */
static bool read_text(const struct file *f, uint64_t off, char *text, size_t size)
{
	ssize_t n = off <= INT64_MAX ? pread(f->fd, text, size, (off_t)off) : -1;

	return n > 0 && memchr(text, '\0', (size_t)n);
}

/* What it is linked to, and whether it wants audit libraries. */
static void read_dynamic(const struct file *f, struct elf_says *says)
{
	Elf64_Phdr dynamic, load;
	uint64_t text = 0;
	char name[PATH_MAX];
	Elf64_Dyn d;

	if (!find_segment(f, PT_DYNAMIC, 0, &dynamic))
		return;
	for (unsigned int i = 0; i < MAX_DYN && read_dyn(f, dynamic.p_offset, i, &d) && d.d_tag != DT_NULL; i++) {
		says->audits |= d.d_tag == DT_AUDIT || d.d_tag == DT_DEPAUDIT;
		if (d.d_tag == DT_STRTAB && find_segment(f, PT_LOAD, d.d_un.d_ptr, &load))
			text = load.p_offset + (d.d_un.d_ptr - load.p_vaddr);
	}
	if (!text)
		return;
	for (unsigned int i = 0; i < MAX_DYN && read_dyn(f, dynamic.p_offset, i, &d) && d.d_tag != DT_NULL; i++)
		if (d.d_tag == DT_NEEDED && read_text(f, text + d.d_un.d_val, name, sizeof(name)))
			args_add(&says->needed, progrun_format("%s", name));
}

int elf_read(const char *path, struct elf_says *says)
{
	struct file f = { .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	Elf64_Phdr ph;
	int ret;

	*says = (struct elf_says){ .audits = false };
	if (f.fd < 0)
		return -errno;
	ret = read_header(&f) ? 0 : -EINVAL;
	if (!ret && find_segment(&f, PT_INTERP, 0, &ph)) {
		ret = 1;
		if (ph.p_filesz < 2 || ph.p_filesz > sizeof(says->interp) ||
		    !read_at(f.fd, says->interp, ph.p_filesz, ph.p_offset))
			ret = -EINVAL;
		else
			says->interp[ph.p_filesz - 1] = '\0';
	}
	if (ret == 1)
		read_dynamic(&f, says);
	close(f.fd);
	return ret;
}

/* Are there @what's @len bytes within @size at @off? */
static bool find_bytes(int fd, uint64_t off, uint64_t size, const char *what, size_t len)
{
	char buf[1 << 16];
	size_t have = 0, kept;
	ssize_t n;

	while (size > 0 && off <= INT64_MAX) {
		n = pread(fd, buf + have, size < sizeof(buf) - have ? size : sizeof(buf) - have, (off_t)off);
		if (n <= 0)
			return false;
		off += (uint64_t)n;
		size -= (uint64_t)n;
		have += (size_t)n;
		if (memmem(buf, have, what, len))
			return true;
		kept = have < len ? have : len - 1;
		memmove(buf, buf + have - kept, kept);
		have = kept;
	}
	return false;
}

bool elf_has_name(const char *path, const char *name)
{
	struct file f = { .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	bool has = false;
	Elf64_Shdr sh;

	if (f.fd < 0)
		return false;
	if (!read_header(&f) || !f.wide || f.eh.e_shentsize != sizeof(sh))
		f.eh.e_shnum = 0;
	for (unsigned int i = 0; i < f.eh.e_shnum && !has; i++)
		if (read_at(f.fd, &sh, sizeof(sh), f.eh.e_shoff + i * sizeof(sh)) && sh.sh_type == SHT_SYMTAB &&
		    read_at(f.fd, &sh, sizeof(sh), f.eh.e_shoff + sh.sh_link * sizeof(sh)))
			has = find_bytes(f.fd, sh.sh_offset, sh.sh_size < MAX_NAMES ? sh.sh_size : MAX_NAMES, name,
					 strlen(name) + 1);
	close(f.fd);
	return has;
}

/* Nobody else can change or exchange it, unless root or the caller has let him. */
static bool is_ours(const char *path)
{
	struct stat st;

	if (stat(path, &st) || (st.st_uid != 0 && st.st_uid != geteuid()))
		return false;
	return !(st.st_mode & S_IWOTH) || (S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX);
}

bool elf_trusted(const char *path)
{
	char real[PATH_MAX], *slash;

	if (!realpath(path, real))
		return false;
	while (is_ours(real)) {
		slash = strrchr(real, '/');
		if (!slash[1])
			return true;
		slash[slash == real] = '\0';
	}
	return false;
}
