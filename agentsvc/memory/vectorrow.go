package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// listIDsSince returns the ids of an owner's memories from a time on (Unix microseconds), how many there are in all,
// and the time of the last one.
func (s *Store) listIDsSince(ctx context.Context, owner agentsvc.Owner, at int64) (ids []string, total int, last int64, err error) {
	var b db.Batch
	// The total shows whether rows were erased since the last call: then the index has more vectors than there are
	// rows.
	b.Query(func(r db.Row) error { return r.Scan(&total, &last) },
		`SELECT COUNT(*), COALESCE(MAX(at), 0) FROM memory WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3`,
		s.tenant, owner.Subject, owner.Issuer)
	b.Query(func(r db.Row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM memory WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND at >= $4 ORDER BY id`,
		s.tenant, owner.Subject, owner.Issuer, at)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, 0, 0, fmt.Errorf("look for new memories: %w", err)
	}
	return ids, total, last, nil
}

// loadMemories returns the owner's memories with these ids, in the order of ids. Those that do not exist are left out.
func (s *Store) loadMemories(ctx context.Context, owner agentsvc.Owner, ids []string) (found []Memory, err error) {
	var b db.Batch
	// One statement for each id keeps the order of ids; they are one round trip. The condition on the owner is a second
	// protection: an id of another user would not be found.
	for _, id := range ids {
		b.Query(func(r db.Row) error {
			m, err := scanMemory(r)
			found = append(found, m)
			return err
		}, `SELECT `+memoryColumns+` FROM memory WHERE tenant = $1 AND id = $2 AND owner_sub = $3 AND owner_iss = $4`,
			s.tenant, id, owner.Subject, owner.Issuer)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	return found, nil
}

// vectorRow is a memory with its vector; the vector is nil if the model has not made one.
// The fields are the row's id, its text and the vector of the current model.
type vectorRow struct {
	id, text string
	vector   []float32
}

// loadVectors returns the owner's memories with these ids, with the vectors that model has made. A vector of another
// model cannot be compared and counts as missing.
func (s *Store) loadVectors(ctx context.Context, owner agentsvc.Owner, ids []string, model string) (rows []vectorRow, err error) {
	var b db.Batch
	for _, id := range ids {
		// The column vector is NULL until saveVectors has set it.
		b.Query(func(r db.Row) error {
			x := vectorRow{id: id}
			var by string
			var raw []byte
			if err := r.Scan(&x.text, &by, &raw); err != nil {
				return err
			}
			if by == model {
				x.vector = decodeVector(raw)
			}
			rows = append(rows, x)
			return nil
		}, `SELECT text, model, vector FROM memory WHERE tenant = $1 AND id = $2 AND owner_sub = $3 AND owner_iss = $4`,
			s.tenant, id, owner.Subject, owner.Issuer)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read vectors of memories: %w", err)
	}
	return rows, nil
}

// saveVectors stores the vectors of the rows at the indices which.
func (s *Store) saveVectors(ctx context.Context, rows []vectorRow, which []int, model string) error {
	if len(which) == 0 {
		return nil
	}
	b := db.Batch{StorageKind: db.StoresMore}
	for _, i := range which {
		b.Exec(nil, `UPDATE memory SET model = $3, vector = $4 WHERE tenant = $1 AND id = $2`, s.tenant, rows[i].id, model, encodeVector(rows[i].vector))
	}
	if err := s.h.Write(ctx, &b); err != nil {
		return fmt.Errorf("store vectors of memories: %w", err)
	}
	return nil
}

// encodeVector returns a vector as it is stored: 4 bytes per number, little-endian IEEE 754.
func encodeVector(vector []float32) []byte {
	out := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// decodeVector is the inverse of encodeVector.
func decodeVector(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
