package db

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// rowColumn is one column of the rows of a merged statement, an argument whose type is an array of T. It implements
// [pgtype.ArrayGetter] for connections without prepared statements, whose arguments pgx encodes as text.
type rowColumn[T string | int64 | bool | []byte] struct {
	rows  [][]any
	index int
}

// Dimensions implements [pgtype.ArrayGetter].
func (c *rowColumn[T]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(c.rows)), LowerBound: 1}}
}

// Index implements [pgtype.ArrayGetter].
func (c *rowColumn[T]) Index(i int) any { return c.rows[i][c.index] }

// IndexType implements [pgtype.ArrayGetter].
func (c *rowColumn[T]) IndexType() any { return *new(T) }

// encodeArray appends the array in the binary format of PostgreSQL: the number of dimensions, a flag for nulls, the
// OID of the elements, the length, the first index, and each element behind its size.
func (c *rowColumn[T]) encodeArray(element uint32, buf []byte) []byte {
	if c.index == 0 {
		buf = slices.Grow(buf, encodedRowsSize(c.rows))
	}
	for _, n := range [...]uint32{1, 0, element, uint32(len(c.rows)), 1} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, row := range c.rows {
		switch v := row[c.index].(type) {
		case string:
			buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
		case []byte:
			buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
		case int64:
			buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v))
		case bool:
			buf = append(binary.BigEndian.AppendUint32(buf, 1), 0)
			if v {
				buf[len(buf)-1] = 1
			}
		}
	}
	return buf
}

// encodedRowsSize returns how many bytes all columns of rows take at most, with the number of rows that follows those
// of a [RowChange].
func encodedRowsSize(rows [][]any) int {
	n := 8 + 20*len(rows[0])
	for _, row := range rows {
		n += (4 + 8) * len(row)
		for _, value := range row {
			switch v := value.(type) {
			case string:
				n += len(v)
			case []byte:
				n += len(v)
			}
		}
	}
	return n
}

// columnCodec is a codec of pgx for an array that encodes a [rowColumn] without a plan and an interface value for each
// element, into a buffer that grows once for all columns (docs/performance.md has the gain).
type columnCodec struct {
	pgtype.Codec
	element uint32
}

// PlanEncode implements [pgtype.Codec].
func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(arrayEncoder); ok && format == pgtype.BinaryFormatCode {
		return columnPlan(c.element)
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// arrayEncoder is a [rowColumn] of any type.
type arrayEncoder interface {
	encodeArray(element uint32, buf []byte) []byte
}

// columnPlan is the plan for a [rowColumn]: the OID of its elements.
type columnPlan uint32

// Encode implements [pgtype.EncodePlan].
func (p columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	return value.(arrayEncoder).encodeArray(uint32(p), buf), nil
}

// registerColumnCodecs makes a new connection of a pool encode columns of rows.
func registerColumnCodecs(_ context.Context, conn *pgx.Conn) error {
	for _, column := range []struct {
		array, element uint32
		value          any
	}{
		{pgtype.TextArrayOID, pgtype.TextOID, &rowColumn[string]{}},
		{pgtype.Int8ArrayOID, pgtype.Int8OID, &rowColumn[int64]{}},
		{pgtype.BoolArrayOID, pgtype.BoolOID, &rowColumn[bool]{}},
		{pgtype.ByteaArrayOID, pgtype.ByteaOID, &rowColumn[[]byte]{}},
	} {
		known, _ := conn.TypeMap().TypeForOID(column.array)
		conn.TypeMap().RegisterType(&pgtype.Type{Name: known.Name, OID: known.OID, Codec: columnCodec{known.Codec, column.element}})
		conn.TypeMap().RegisterDefaultPgType(column.value, known.Name)
	}
	return nil
}
