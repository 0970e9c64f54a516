package main

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"strings"
)

// readVocabulary returns the entries of a compressed vocabulary. It panics if the file, which is part of the program, is
// damaged.
func readVocabulary(compressed string, entries int) map[string]uint {
	r, err := gzip.NewReader(strings.NewReader(compressed))
	if err != nil {
		panic(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	// The tokens are parts of one text.
	text, ids, id := string(raw), make(map[string]uint, entries), uint64(0)
	for at := 0; at < len(raw); id++ {
		skipped, n := binary.Uvarint(raw[at:])
		length, m := binary.Uvarint(raw[at+n:])
		id += skipped
		at += n + m + int(length) //nolint:gosec // below the size of the file
		ids[text[at-int(length):at]] = uint(id)
	}
	return ids
}
