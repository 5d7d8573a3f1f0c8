/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The MPI library behind the hooks.
 *
 * Our references to it are weak.  Those to functions that we have as well, for tools, have been renamed when we were linked
 * (REAL), as they would be bound to ourselves; the dynamic linker binds the others when it loads us, if the program is linked
 * to an MPI library.  A program that loads its MPI library later (Python's mpi4py, plug-ins) leaves all unbound.  Before
 * the first of them is used we find the library and bind what is unbound: we look behind us in the global scope, and then
 * in that of the object that calls.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hooks_gen.h"

/* In front of the names of the library's functions whose names we have; see "names" in genhooks. */
#define REAL		"real_"

/* What libraries of other families do not have. */
#define NAME_IN_OMPI	"ompi_mpi_comm_world"
#if defined(HOOK_ABI)
#define FAMILY		MPI_FAMILY_ABI
#define LIBRARY		"MPI's standard ABI"
#elif defined(OPEN_MPI)
#define FAMILY		MPI_FAMILY_OMPI
#define LIBRARY		"Open MPI"
#else
#define FAMILY		MPI_FAMILY_MPICH
#define LIBRARY		"MPICH"
#endif

#define NAME_IN_C	"PMPI_Init"
#define NAME_IN_FORTRAN	"pmpi_win_get_attr_"

bool real_bound, real_fortran;
#ifdef HOOK_ABI
bool real_is_ompi;
#endif
static void *library;		/* the MPI library, held; set once, before real_bound */
static struct link_map *library_map;
static struct mpi_version version;	/* of the library; set with it */
static int abi;			/* see abi_major(); set with it */
static const char *lacking;	/* a name of ours that it does not have, and ought to have, or NULL; set with it */

/* ---- our own references -------------------------------------------------------------------------- */

/* An object, mostly we. */
struct self {
	ElfW(Addr) base;
	uintptr_t end;
	const ElfW(Dyn) *dyn;
	uintptr_t relro, relro_end;	/* made read-only by the dynamic linker: whole pages */
};

static void see_object(struct self *s, const struct dl_phdr_info *info, bool *is_self)
{
	const uintptr_t here = (uintptr_t)&real_bound, page = (uintptr_t)sysconf(_SC_PAGESIZE);

	*s = (struct self){ .base = info->dlpi_addr };
	*is_self = false;
	for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const uintptr_t at = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD) {
			*is_self |= here - at < ph->p_memsz;
			s->end = at + ph->p_memsz;
		} else if (ph->p_type == PT_DYNAMIC) {
			s->dyn = (const void *)at;
		} else if (ph->p_type == PT_GNU_RELRO) {
			s->relro = at & ~(page - 1);
			s->relro_end = (at + ph->p_memsz) & ~(page - 1);
		}
	}
}

static int find_self(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct self *s = arg;
	bool found;

	see_object(s, info, &found);
	if (!found)
		*s = (struct self){ 0 };
	return found;
}

/* The dynamic linker has added the base already, where it can. */
static const void *self_at(const struct self *s, ElfW(Addr) value)
{
	return (const void *)(value < s->base ? value + s->base : value);
}

static bool is_fortran(const char *name)
{
	return strncmp(name, "pmpi", 4) == 0 || strncmp(name, "mpi_", 4) == 0;
}

/* Is it the library's, and ought to be there?  Not what some versions do not have: whoever calls that looks first. */
static bool is_needed(const char *name)
{
	static const char *const prefixes[] = { "PMPI_", "MPI_", "MPIR_", "OMPI_", "ompi_mpi_" };
	bool is = false;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		is |= !strncmp(name, prefixes[i], strlen(prefixes[i]));
	if (!is || !strncmp(name, "ompi_mpi_errors_are_fatal_", 26))
		return false;
	for (const char *const *n = entry.optional; *n; n++)
		if (!strcmp(*n, name))
			return false;
	return true;
}

static void bind_table(const struct self *s, const ElfW(Rela) *rela, size_t bytes, const ElfW(Sym) *symtab,
		       const char *strtab, void *lib, bool fortran)
{
	for (size_t i = 0; i < bytes / sizeof(*rela); i++) {
		const ElfW(Sym) *sym = &symtab[ELF64_R_SYM(rela[i].r_info)];
		ElfW(Addr) *slot = (ElfW(Addr) *)(s->base + rela[i].r_offset);
		const char *name = strtab + sym->st_name;
		bool ours = !strncmp(name, REAL, sizeof(REAL) - 1);
		void *at = NULL;

		if (ours)
			name += sizeof(REAL) - 1;
		/* all kinds of references to such a name hold the address and the addend */
		if (sym->st_shndx != SHN_UNDEF || ELF64_ST_BIND(sym->st_info) != STB_WEAK ||
		    *slot != (ElfW(Addr))rela[i].r_addend || is_fortran(name) != fortran)
			continue;
		if (!ours)
			at = dlsym(RTLD_DEFAULT, name);
		if (!at)
			at = dlsym(lib, name);
		if (at)
			*slot = (ElfW(Addr))at + (ElfW(Addr))rela[i].r_addend;
		else if (!fortran && is_needed(name))
			lacking = name;
	}
}

/* An object's references. */
struct tables {
	const ElfW(Rela) *rela, *jmprel;
	size_t relasz, jmprelsz;
	const ElfW(Sym) *symtab;
	const char *strtab;
};

static bool find_tables(struct tables *t, const struct self *s)
{
	*t = (struct tables){ 0 };
	for (const ElfW(Dyn) *d = s->dyn; d && d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_RELA:
			t->rela = self_at(s, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			t->relasz = d->d_un.d_val;
			break;
		case DT_JMPREL:
			t->jmprel = self_at(s, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			t->jmprelsz = d->d_un.d_val;
			break;
		case DT_SYMTAB:
			t->symtab = self_at(s, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			t->strtab = self_at(s, d->d_un.d_ptr);
			break;
		}
	}
	return t->symtab && t->strtab;
}

/* What the dynamic linker left unbound gets what is in the global scope, if we do not have it, or in @lib. */
static int bind_names(void *lib, bool fortran)
{
	struct self s = { 0 };
	struct tables t;
	int rc = 0;

	dl_iterate_phdr(find_self, &s);
	if (!find_tables(&t, &s))
		return -ENOEXEC;
	if (s.relro < s.relro_end &&
	    mprotect((void *)s.relro, s.relro_end - s.relro, PROT_READ | PROT_WRITE))
		return -errno;
	if (t.rela)
		bind_table(&s, t.rela, t.relasz, t.symtab, t.strtab, lib, fortran);
	if (t.jmprel)
		bind_table(&s, t.jmprel, t.jmprelsz, t.symtab, t.strtab, lib, fortran);
	if (s.relro < s.relro_end && mprotect((void *)s.relro, s.relro_end - s.relro, PROT_READ))
		rc = -errno;
	return rc;
}

/* ---- the library --------------------------------------------------------------------------------- */

/* The object that @addr lies in, held; NULL when there is none, or it is ourselves. */
static void *object_of(const void *addr, const char **file)
{
	struct link_map *map, *own;
	Dl_info info;

	if (!dladdr1(&real_bound, &info, (void **)&own, RTLD_DL_LINKMAP) ||
	    !dladdr1(addr, &info, (void **)&map, RTLD_DL_LINKMAP) || map == own)
		return NULL;
	if (file)
		*file = *map->l_name ? map->l_name : info.dli_fname;
	return dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
}

struct objects {
	const char *only;	/* part of the file's name, or NULL */
	char **name;
	size_t n;
};

static int note_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	struct objects *o = arg;
	char **more;

	if (o->only && !strstr(slash ? slash : info->dlpi_name, o->only))
		return 0;
	more = realloc(o->name, (o->n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	o->name = more;
	more[o->n] = strdup(info->dlpi_name);
	if (!more[o->n])
		return -ENOMEM;
	o->n++;
	return 0;
}

/* Where @scope has @name, unless that is ourselves. */
static void *name_in(void *scope, const char *name)
{
	void *at = dlsym(scope, name);
	struct self self = { 0 };

	dl_iterate_phdr(find_self, &self);
	return at && (uintptr_t)at - self.base >= self.end - self.base ? at : NULL;
}

/* What the loaded object that came first of those with @name in their scopes has; of files that are called *@only* only, if given. */
static void *find_in_objects(const char *name, const char *only)
{
	struct objects o = { .only = only };
	void *scope, *at = NULL;

	dl_iterate_phdr(note_object, &o);
	for (size_t i = 0; i < o.n; i++) {
		scope = at ? NULL : dlopen(o.name[i], RTLD_LAZY | RTLD_NOLOAD);
		if (scope) {
			at = name_in(scope, name);
			dlclose(scope);
		}
		free(o.name[i]);
	}
	free(o.name);
	return at;
}

/*
 * Where the library has @name: in the global scope, in that of the object with @caller in it, or else in that of the
 * object that was loaded first, which brought the library along.  NULL: nobody has it.
 */
static void *find_name(const char *name, const void *caller)
{
	void *scope, *at = dlsym(RTLD_NEXT, name);

	if (at)
		return at;
	scope = object_of(caller, NULL);
	if (scope) {
		at = name_in(scope, name);
		dlclose(scope);
	}
	return at ? at : find_in_objects(name, NULL);
}

static _Noreturn void give_up(const char *what)
{
	prog_log(PROG_LOG_ERROR, "this library is for " LIBRARY ", %s", what);
	_exit(1);
}

static _Noreturn void give_up_rc(const char *what, int rc)
{
	prog_log(PROG_LOG_ERROR, "%s cannot be redirected: %s", what, strerror(-rc));
	_exit(1);
}

/*
 * The version of the standard's ABI that the library has; 0: what its file says that it has, and it does not tell; negative:
 * another ABI.  Whose ABI is another one has the call, too, and answers with -1.
 */
static int abi_major(const char *file)
{
	int (*ask)(int *, int *) = (int (*)(int *, int *))dlsym(library, "PMPI_Abi_get_version");
	const char *slash = strrchr(file, '/');
	int major = -1, minor = -1;

	if (ask && !ask(&major, &minor) && major > 0)
		return major;
	return strncmp(slash ? slash + 1 : file, "libmpi_abi", 10) ? -1 : 0;
}

/* A library may tell its version before MPI_Init. */
static void ask_version(struct mpi_version *v, const char *file)
{
	int (*ask)(char *, int *) = library ? (int (*)(char *, int *))dlsym(library, "PMPI_Get_library_version") : NULL;
	static char text[MPI_MAX_LIBRARY_VERSION_STRING > 8192 ? MPI_MAX_LIBRARY_VERSION_STRING : 8192];
	int len = 0;

	if (ask && ask(text, &len))
		*text = '\0';
	mpi_version_parse(v, text);
	/* libraries of the standard's ABI say the same as others of their kind; their handles are others */
	abi = library ? abi_major(file) : -1;
	if (abi >= 0)
		mpi_version_set_abi(v, abi);
	else if (library && (v->family == MPI_FAMILY_OMPI) != !!dlsym(library, NAME_IN_OMPI))
		v->family = MPI_FAMILY_NONE;
}

const struct mpi_version *real_version(void)
{
	return &version;
}

const char *real_lacks(void)
{
	return lacking;
}

/*
 * There is nothing to fall back to when the library is another one: every handle would be taken for something else,
 * and calls come here first.
 */
static void find_library(const void *init)
{
	const char *file = "in the program itself";
	Dl_info info;

	library = object_of(init, &file);	/* stays open, so that it is not unloaded while we use it */
	ask_version(&version, file);
	if (version.family == FAMILY) {
#ifdef HOOK_ABI
		real_is_ompi = version.ompi;
#endif
		dladdr1(init, &info, (void **)&library_map, RTLD_DL_LINKMAP);
		return;
	}
	if (version.family != MPI_FAMILY_NONE)
		prog_log(PROG_LOG_ERROR, "this library is for " LIBRARY ", the program uses %s (%s: %s): preload "
			 "libprogmpi-%s.so, with progrun --mpi %s", mpi_family_name(version.family), file, version.name,
			 mpi_family_short(version.family), mpi_family_short(version.family));
	else
		prog_log(PROG_LOG_ERROR, "this library is for " LIBRARY ", the program uses neither it nor a library of "
			 "another family that is known, but %s (%s)", file, *version.name ? version.name : "of no version");
	_exit(1);
}

/*
 * Who starts MPI may have brought a library of its own, while we serve another: of what it calls we would make calls of that one.
 * Where there is one for all, the scope of the object that calls has ours in front of it, or the library that we serve.
 */
void real_check_starter(const void *caller)
{
	const char *file = NULL;
	struct link_map *map;
	void *scope, *init;
	Dl_info info;

	if (!__atomic_load_n(&real_bound, __ATOMIC_ACQUIRE))
		real_bind(caller, false);
	scope = object_of(caller, NULL);
	if (!scope)
		return;
	init = name_in(scope, NAME_IN_C);
	if (init && library_map && dladdr1(init, &info, (void **)&map, RTLD_DL_LINKMAP) && map != library_map)
		file = info.dli_fname;
	if (file) {
		prog_log(PROG_LOG_ERROR, "MPI is started by a library that is linked to %s, while this process uses %s (%s) already: "
			 "of two MPI libraries in a process asyncprog can serve one; run it natively, "
			 "without LD_PRELOAD", file, *library_map->l_name ? library_map->l_name : "that in the program", version.name);
		_exit(1);
	}
	dlclose(scope);
}

static void bind_c(const void *caller)
{
	void *init = find_name(NAME_IN_C, caller);
	int rc;

	if (!init)
		give_up("and no MPI library is loaded");
	find_library(init);
	rc = bind_names(library, false);
	if (rc)
		give_up_rc("calls of " LIBRARY, rc);
	/* what went before it had the same names and other handles */
	if (version.family == MPI_FAMILY_ABI && !abi)
		lacking = "version 1 of MPI's standard ABI";
}

static void bind_fortran(const void *caller)
{
	void *name = find_name(NAME_IN_FORTRAN, caller);
	int rc;

	if (!name)
		give_up("whose Fortran functions are not loaded");
	rc = bind_names(object_of(name, NULL), true);	/* stays open, too */
	if (rc)
		give_up_rc("Fortran calls of " LIBRARY, rc);
}

void real_bind(const void *caller, bool fortran)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	if (!real_bound) {
		bind_c(caller);
		entry.bind();
		__atomic_store_n(&real_bound, true, __ATOMIC_RELEASE);
	}
	if (fortran && !real_fortran) {
		bind_fortran(caller);
		__atomic_store_n(&real_fortran, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- who calls PMPI names ------------------------------------------------------------------------- */

/* The code of objects that called, in the order in which they came; all are held, so that nothing else comes to their places. */
#define CALLERS_MAX	64

struct code {
	uintptr_t base, size;
};

static struct caller {
	struct code code;
	enum { OF_PROGRAM, OF_LIBRARY, OF_FORTRAN } who;
} callers[CALLERS_MAX];
static unsigned int ncallers;	/* grows only */

struct code_at {
	uintptr_t addr;
	struct code code;
};

static int find_code(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct code_at *c = arg;

	for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const uintptr_t at = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_LOAD && c->addr - at < ph->p_memsz) {
			c->code = (struct code){ at, ph->p_memsz };
			return 1;
		}
	}
	return 0;
}

/*
 * Is it the MPI library, or one of the parts that it loads itself?  Not its Fortran libraries: what they call is what the program
 * calls.  Nor what calls MPI from outside though it comes with it (libompitrace, ompi_monitoring_prof).
 */
static bool is_library(const struct link_map *map)
{
	static const char *const parts[] = {
#if defined(OPEN_MPI) || defined(HOOK_ABI)
		"mca_", "libmca_", "liboshmem.", "libopen_mpi.",
#endif
		NULL
	};
	const char *slash = strrchr(map->l_name, '/'), *name = slash ? slash + 1 : map->l_name;

	if (map == library_map)
		return true;
	for (size_t i = 0; parts[i]; i++)
		if (!strncmp(name, parts[i], strlen(parts[i])))
			return true;
	return false;
}

static bool is_fortran_library(const struct link_map *map)
{
	const char *slash = strrchr(map->l_name, '/');

	return slash && !strncmp(slash + 1, "libmpi_mpifh.", 13);
}

static __attribute__((noinline)) bool new_caller(const void *addr)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct code_at c = { .addr = (uintptr_t)addr };
	void *held = NULL;
	struct link_map *map;
	unsigned int n, i = 0;
	Dl_info info;
	bool is;

	if (unlikely(!__atomic_load_n(&real_bound, __ATOMIC_ACQUIRE)))
		real_bind(addr, false);
	/* code that a program made while it runs is in no object, and its own */
	if (!dladdr1(addr, &info, (void **)&map, RTLD_DL_LINKMAP) || !dl_iterate_phdr(find_code, &c))
		return false;
	is = is_library(map);
	/* not under the lock: who loads a library may come here, too, from its constructor */
	if (*map->l_name) {
		held = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		if (!held)
			return is;
	}
	pthread_mutex_lock(&lock);
	n = ncallers;
	while (i < n && callers[i].code.base != c.code.base)
		i++;
	if (i == n && n < CALLERS_MAX) {
		callers[n] = (struct caller){ c.code, is ? OF_LIBRARY : is_fortran_library(map) ? OF_FORTRAN : OF_PROGRAM };
		__atomic_store_n(&ncallers, n + 1, __ATOMIC_RELEASE);
		held = NULL;	/* for good */
	}
	pthread_mutex_unlock(&lock);
	if (held)
		dlclose(held);
	return is;
}

bool real_calls_itself(const void *addr)
{
	const unsigned int n = __atomic_load_n(&ncallers, __ATOMIC_ACQUIRE);

	for (unsigned int i = 0; i < n; i++)
		if ((uintptr_t)addr - callers[i].code.base < callers[i].code.size)
			return callers[i].who == OF_LIBRARY;
	return new_caller(addr);
}

bool real_calls_from_fortran(const void *addr)
{
	const unsigned int n = __atomic_load_n(&ncallers, __ATOMIC_ACQUIRE);
	struct link_map *map;
	Dl_info info;

	for (unsigned int i = 0; i < n; i++)
		if ((uintptr_t)addr - callers[i].code.base < callers[i].code.size)
			return callers[i].who == OF_FORTRAN;
	/* there are more objects than places */
	return dladdr1(addr, &info, (void **)&map, RTLD_DL_LINKMAP) && is_fortran_library(map);
}

/* ---- sessions that may come ------------------------------------------------------------------------ */

/* By any of its names in C and Fortran. */
static bool is_session_init(const char *name)
{
	return !strncasecmp(name + (*name == 'P' || *name == 'p'), "MPI_Session_init", 16);
}

static bool begins_sessions(const struct tables *t, const ElfW(Rela) *rela, size_t bytes)
{
	for (size_t i = 0; rela && i < bytes / sizeof(*rela); i++) {
		const ElfW(Sym) *sym = &t->symtab[ELF64_R_SYM(rela[i].r_info)];

		if (sym->st_shndx == SHN_UNDEF && is_session_init(t->strtab + sym->st_name))
			return true;
	}
	return false;
}

/* Not the MPI library, whose Fortran functions do, nor we. */
static int find_sessions(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
	struct tables t;
	struct self s;
	bool is_self;

	see_object(&s, info, &is_self);
	return !is_self && strncmp(name, "libmpi.", 7) && strncmp(name, "libmpi_", 7) && find_tables(&t, &s) &&
	       (begins_sessions(&t, t.rela, t.relasz) || begins_sessions(&t, t.jmprel, t.jmprelsz));
}

bool real_may_have_sessions(void)
{
	return dl_iterate_phdr(find_sessions, NULL);
}

/* ---- tools that stand behind ----------------------------------------------------------------------- */

/* Who has @name in vain, as we get its calls, or NULL. */
static const char *hidden_definer(const struct self *self, const char *name)
{
	const void *first = dlsym(RTLD_DEFAULT, name), *next = dlsym(RTLD_NEXT, name);
	struct link_map *map;
	Dl_info info;

	/* behind a tool that stands in front of us nobody sees calls natively, either */
	if (!next || (uintptr_t)first - self->base >= self->end - self->base ||
	    !dladdr1(next, &info, (void **)&map, RTLD_DL_LINKMAP) || map == library_map)
		return NULL;
	return info.dli_fname;
}

bool real_tool_behind(char *what, size_t size)
{
	const char *name = NULL, *file = NULL, *by;
	struct self self = { 0 };
	int more = 0;

	dl_iterate_phdr(find_self, &self);
	for (const char *const *n = entry.names; *n; n++) {
		by = hidden_definer(&self, *n);
		if (by && name) {
			more++;
		} else if (by) {
			name = *n;
			file = by;
		}
	}
	if (more)
		snprintf(what, size, "%s and %d more of %s", name, more, file);
	else if (name)
		snprintf(what, size, "%s of %s", name, file);
	return name;
}

bool real_was_used(char *file, size_t size)
{
	int (*finalized)(int *) = (int (*)(int *))find_in_objects("PMPI_Finalized", "libmpi");
	int flag = 0;
	Dl_info info;

	/* a forked child that ends has not finalized: only what used the library to the end is asked about */
	if (finalized && (finalized(&flag) || !dladdr((void *)finalized, &info)))
		flag = 0;
	if (flag)
		snprintf(file, size, "%s", info.dli_fname);
	return flag;
}
