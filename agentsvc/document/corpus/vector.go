package corpus

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"stoa/tenancy/db"
)

// FindVectors returns the stored vectors of texts by hash, made by model for the tenant's documents.
func (x *Index) FindVectors(ctx context.Context, model string, textHashes []string) (map[string][]float32, error) {
	found := make(map[string][]float32, len(textHashes))
	for part := range slices.Chunk(textHashes, 200) {
		var b db.Batch
		for _, hash := range part {
			b.Query(func(r db.Row) error {
				var raw []byte
				if err := r.Scan(&raw); err != nil {
					return err
				}
				found[hash] = decodeVector(raw)
				return nil
			}, `SELECT vector FROM chunk_vector WHERE tenant = $1 AND model = $2 AND text_hash = $3 LIMIT 1`, x.tenant, model, hash)
		}
		if err := x.h.Do(ctx, &b); err != nil {
			return nil, fmt.Errorf("find stored vectors: %w", err)
		}
	}
	return found, nil
}

// encodeVector returns a vector of length 1 in the direction of vector as it is stored: 4 bytes per number, little-endian
// IEEE 754. It returns nil if the vector has no direction: it is empty or zero, or has a number that is not finite.
func encodeVector(vector []float32) []byte {
	sum := 0.0
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	length := math.Sqrt(sum)
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return nil
	}
	out := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(float64(x)/length)))
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

// dotProduct returns the sum of the products of a stored vector's numbers and those of b, which has as many. Four sums let
// the processor add at the same time.
func dotProduct(raw []byte, b []float32) float64 {
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(b); i += 4 {
		part := raw[4*i : 4*i+16]
		s0 += b[i] * math.Float32frombits(binary.LittleEndian.Uint32(part))
		s1 += b[i+1] * math.Float32frombits(binary.LittleEndian.Uint32(part[4:]))
		s2 += b[i+2] * math.Float32frombits(binary.LittleEndian.Uint32(part[8:]))
		s3 += b[i+3] * math.Float32frombits(binary.LittleEndian.Uint32(part[12:]))
	}
	for ; i < len(b); i++ {
		s0 += b[i] * math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return float64(s0) + float64(s1) + float64(s2) + float64(s3)
}
