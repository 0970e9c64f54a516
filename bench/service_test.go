package main

import (
	"slices"
	"testing"
)

func TestServiceRows(t *testing.T) {
	t.Parallel()
	got := serviceRows(`goos: linux
BenchmarkSearch/sqlite/10/text-2         	     300	         0.1316 load-ms	         0.3920 p50-ms	         1.182 p50-ratio	         1.001 p99-ms	         3.023 p99-ratio
BenchmarkSearch/postgres/1000/hybrid     	     300	         6.865 p50-ms	         1.166 p50-ratio	        24.23 p99-ms	         1.176 p99-ratio
BenchmarkSearch/postgres/1000/vector-16  	     300	         6.865 p50-ms	         1.766 p50-ratio	        24.23 p99-ms	         1.076 p99-ratio
PASS
`)
	want := []row{
		{"DOCS", "SQLite, 10 chunks of a tenant, 1000 others: text search without a request ÷ the bare query, c=1, p50; p99", "≤ 1.30", "1.18; 3.02 (p50 0.39 ms)", no},
		{"DOCS", "PostgreSQL, 1000 chunks of a tenant: hybrid search without a request ÷ the bare query, c=1, p50; p99", "≤ 1.30", "1.17; 1.18 (p50 6.87 ms)", yes},
		{"DOCS", "PostgreSQL, 1000 chunks of a tenant: vector search without a request ÷ the bare query, c=1, p50; p99", "≤ 1.30", "1.77; 1.08 (p50 6.87 ms)", no},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
