package main

import (
	"bytes"
	"testing"
)

// TestTableCells checks that the text of a cell cannot look like another row.
func TestTableCells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &console{out: &out}
	if err := c.printTable([]string{"DOCUMENT", "STATE"}, [][]string{{"a\nb\tc\u202ed\x1b[2J", "indexed"}, {"grün", "failed"}}); err != nil {
		t.Fatal(err)
	}
	const want = "DOCUMENT               STATE\na\\nb\\tc\\u202ed\\x1b[2J  indexed\ngrün                   failed\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
