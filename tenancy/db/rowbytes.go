package db

import "fmt"

// RowBytes receives a text or a binary value of a row without a copy. It is valid as long as the [Row].
type RowBytes []byte

// Scan implements [database/sql.Scanner].
func (b *RowBytes) Scan(value any) error {
	switch v := value.(type) {
	case []byte:
		*b = v
	case string:
		*b = append((*b)[:0], v...)
	default:
		return fmt.Errorf("a value of type %T is neither a text nor binary", value)
	}
	return nil
}

// ScanBytes implements [github.com/jackc/pgx/v5/pgtype.BytesScanner].
func (b *RowBytes) ScanBytes(value []byte) error {
	*b = value
	return nil
}
