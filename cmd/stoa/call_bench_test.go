package main

import (
	"testing"
)

// BenchmarkCall is a blocking call through the whole house, on a database in memory.
func BenchmarkCall(b *testing.B) {
	h := openTestHouse(b, "sqlite://:memory:")
	body := rpc("message:send", words("hello"))
	b.ReportAllocs()
	for b.Loop() {
		h.want(b, 200, nil, "POST", "/agents/assistant", "", body)
	}
}
