// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Is a library a PMPI tool? */
#include "progrun.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
	const unsigned char *at;
	size_t size;
};

/* SIZE bytes at OFF, or NULL: it does not have them */
static const void *part(const struct file *f, size_t off, size_t size)
{
	return off <= f->size && size <= f->size - off ? f->at + off : NULL;
}

struct names {
	const Elf64_Sym *sym;
	size_t n;
	const char *text;	/* ends with a zero */
	size_t size;
};

static bool find_names(const struct file *f, struct names *names)
{
	const Elf64_Ehdr *eh = part(f, 0, sizeof(*eh));
	const Elf64_Shdr *sh;

	if (!eh || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 || eh->e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh->e_shentsize != sizeof(*sh))
		return false;
	sh = part(f, eh->e_shoff, (size_t)eh->e_shnum * sizeof(*sh));
	for (size_t i = 0; sh && i < eh->e_shnum; i++) {
		if (sh[i].sh_type != SHT_DYNSYM || sh[i].sh_link >= eh->e_shnum)
			continue;
		names->sym = part(f, sh[i].sh_offset, sh[i].sh_size);
		names->n = sh[i].sh_size / sizeof(*names->sym);
		names->size = sh[sh[i].sh_link].sh_size;
		names->text = part(f, sh[sh[i].sh_link].sh_offset, names->size);
		return names->sym && names->text && names->size && !names->text[names->size - 1];
	}
	return false;
}

static const char *name_of(const struct names *names, size_t i)
{
	return names->sym[i].st_name < names->size ? names->text + names->sym[i].st_name : "";
}

static bool has(const struct names *names, const char *name, bool defined)
{
	for (size_t i = 0; i < names->n; i++) {
		if ((names->sym[i].st_shndx != SHN_UNDEF) == defined && strcmp(name_of(names, i), name) == 0)
			return true;
	}
	return false;
}

/*
 * It has MPI_Init, MPI_Init_thread or MPI_Finalize, or a MPI_* function whose PMPI_* it calls, and is no MPI library itself. The
 * libraries for Fortran have other names.
 */
static bool wraps(const struct names *names)
{
	char *pmpi;
	bool wants;

	if (has(names, "PMPI_Init", true))
		return false;
	if (has(names, "MPI_Init", true) || has(names, "MPI_Init_thread", true) || has(names, "MPI_Finalize", true))
		return true;
	for (size_t i = 0; i < names->n; i++) {
		if (names->sym[i].st_shndx == SHN_UNDEF || strncmp(name_of(names, i), "MPI_", 4) != 0)
			continue;
		pmpi = progrun_format("P%s", name_of(names, i));
		wants = has(names, pmpi, false);
		free(pmpi);
		if (wants)
			return true;
	}
	return false;
}

bool tool_is(const char *path)
{
	struct names names;
	struct file f;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool is;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size) {
		close(fd);
		return false;
	}
	f.size = (size_t)st.st_size;
	f.at = mmap(NULL, f.size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (f.at == MAP_FAILED)
		return false;
	is = find_names(&f, &names) && wraps(&names);
	munmap((void *)f.at, f.size);
	return is;
}
