/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Numbers of reduction operations and basic types, as they stand in ring entries, in frames
 * between nodes and in flattened datatypes. They are constants and never enums: the width
 * of the field that holds one is the field's business. Numbers are never reused; 0 is
 * invalid everywhere, so that a zeroed entry is not a valid operation.
 */
#ifndef PROG_WIRE_OPTYPE_H
#define PROG_WIRE_OPTYPE_H

/* Reduction operations. */
#define PROG_OP_SUM		1
#define PROG_OP_PROD		2
#define PROG_OP_MIN		3
#define PROG_OP_MAX		4
#define PROG_OP_LAND		5
#define PROG_OP_LOR		6
#define PROG_OP_LXOR		7
#define PROG_OP_BAND		8
#define PROG_OP_BOR		9
#define PROG_OP_BXOR		10
#define PROG_OP_MINLOC		11
#define PROG_OP_MAXLOC		12
#define PROG_OP_REPLACE		13
#define PROG_OP_NO_OP		14
#define PROG_OP_END		15	/* one past the last */

/*
 * Basic types. A type of the MPI library is mapped to the one here with the same size and
 * the same arithmetic (MPI_INT, MPI_INT32_T and MPI_INTEGER4 are all I32; MPI_AINT,
 * MPI_OFFSET and MPI_COUNT are I64).
 */
#define PROG_TYPE_MIXED		0	/* in a datatype: more than one basic type, or none */
#define PROG_TYPE_BYTE		1	/* MPI_BYTE: operations as U8 */
#define PROG_TYPE_CHAR		2	/* MPI_CHAR, MPI_CHARACTER (Open MPI's: U8): operations as C's char */
#define PROG_TYPE_WCHAR		3	/* MPI_WCHAR (4 bytes): REPLACE and NO_OP only */
#define PROG_TYPE_I8		4
#define PROG_TYPE_I16		5
#define PROG_TYPE_I32		6
#define PROG_TYPE_I64		7
#define PROG_TYPE_I128		8	/* MPI_INTEGER16 */
#define PROG_TYPE_U8		9
#define PROG_TYPE_U16		10
#define PROG_TYPE_U32		11
#define PROG_TYPE_U64		12
#define PROG_TYPE_BOOL		13	/* MPI_C_BOOL, MPI_CXX_BOOL (MPICH's: U8) */
#define PROG_TYPE_L8		14	/* Fortran LOGICAL of 1, 2, 4 and 8 bytes; .true. is 1 */
#define PROG_TYPE_L16		15
#define PROG_TYPE_L32		16
#define PROG_TYPE_L64		17
#define PROG_TYPE_F32		18
#define PROG_TYPE_F64		19
#define PROG_TYPE_LDOUBLE	20	/* C long double: x87 in 16 bytes on x86 */
#define PROG_TYPE_F128		21	/* IEEE binary128: REAL(16) */
#define PROG_TYPE_CF32		22	/* complex of each */
#define PROG_TYPE_CF64		23
#define PROG_TYPE_CLDOUBLE	24
#define PROG_TYPE_CF128		25
#define PROG_TYPE_FLOAT_INT	26	/* pairs for MINLOC and MAXLOC */
#define PROG_TYPE_DOUBLE_INT	27
#define PROG_TYPE_LONG_INT	28
#define PROG_TYPE_2INT		29	/* also MPI_2INTEGER (default kind) */
#define PROG_TYPE_SHORT_INT	30
#define PROG_TYPE_LDOUBLE_INT	31
#define PROG_TYPE_2REAL		32
#define PROG_TYPE_2DOUBLE	33	/* MPI_2DOUBLE_PRECISION */
#define PROG_TYPE_2INTEGER	PROG_TYPE_2INT
#define PROG_TYPE_END		34	/* one past the last */

/*
 * One row per type: X(suffix, name, packed size, extent in memory,
 *		       bytes of part 0, offset of part 1 in memory, bytes of part 1).
 * A pair has two parts; part 0 starts at offset 0; packed, part 1 follows part 0 at once.
 * A type whose extent equals its packed size is "dense"; the others are "gap" types.
 */
#define PROG_TYPE_TABLE(X) \
	X(BYTE,		"byte",			 1,  1,  1,  0, 0) \
	X(CHAR,		"char",			 1,  1,  1,  0, 0) \
	X(WCHAR,	"wchar",		 4,  4,  4,  0, 0) \
	X(I8,		"int8",			 1,  1,  1,  0, 0) \
	X(I16,		"int16",		 2,  2,  2,  0, 0) \
	X(I32,		"int32",		 4,  4,  4,  0, 0) \
	X(I64,		"int64",		 8,  8,  8,  0, 0) \
	X(I128,		"int128",		16, 16, 16,  0, 0) \
	X(U8,		"uint8",		 1,  1,  1,  0, 0) \
	X(U16,		"uint16",		 2,  2,  2,  0, 0) \
	X(U32,		"uint32",		 4,  4,  4,  0, 0) \
	X(U64,		"uint64",		 8,  8,  8,  0, 0) \
	X(BOOL,		"bool",			 1,  1,  1,  0, 0) \
	X(L8,		"logical1",		 1,  1,  1,  0, 0) \
	X(L16,		"logical2",		 2,  2,  2,  0, 0) \
	X(L32,		"logical4",		 4,  4,  4,  0, 0) \
	X(L64,		"logical8",		 8,  8,  8,  0, 0) \
	X(F32,		"float",		 4,  4,  4,  0, 0) \
	X(F64,		"double",		 8,  8,  8,  0, 0) \
	X(LDOUBLE,	"long double",		16, 16, 16,  0, 0) \
	X(F128,		"float128",		16, 16, 16,  0, 0) \
	X(CF32,		"complex float",	 8,  8,  8,  0, 0) \
	X(CF64,		"complex double",	16, 16, 16,  0, 0) \
	X(CLDOUBLE,	"complex long double",	32, 32, 32,  0, 0) \
	X(CF128,	"complex float128",	32, 32, 32,  0, 0) \
	X(FLOAT_INT,	"float-int",		 8,  8,  4,  4, 4) \
	X(DOUBLE_INT,	"double-int",		12, 16,  8,  8, 4) \
	X(LONG_INT,	"long-int",		12, 16,  8,  8, 4) \
	X(2INT,		"2int",			 8,  8,  4,  4, 4) \
	X(SHORT_INT,	"short-int",		 6,  8,  2,  4, 4) \
	X(LDOUBLE_INT,	"long double-int",	20, 32, 16, 16, 4) \
	X(2REAL,	"2real",		 8,  8,  4,  4, 4) \
	X(2DOUBLE,	"2double",		16, 16,  8,  8, 8)

#endif
