package document

import "testing"

// TestFindDifference checks which value of a key is reported as changed, and what does not count as a change.
func TestFindDifference(t *testing.T) {
	t.Parallel()
	const before = "name: x\nserver: # ours\n  port: ${PORT:8080}\n  cors: {allowed_origins: [https://a.example, https://b.example]}\n  tls: {enabled: false}\n"
	tests := []struct {
		name, after string
		want        string // the path; "" = no difference
		line        int
	}{
		{"nothing", before, "", 0},
		{"another key", "name: y\n" + before[8:], "", 0},
		{"comments, order, quotes", "server:\n  tls: {enabled: false}\n  cors:\n    allowed_origins:\n    - 'https://a.example'\n    - https://b.example\n  port: ${PORT:8080}\n", "", 0},
		{"a value", "server:\n  port: 9090\n  cors: {allowed_origins: [https://a.example, https://b.example]}\n  tls: {enabled: false}\n", "server.port", 2},
		{"the default of a variable", "server:\n  tls: {enabled: false}\n  port: ${PORT:9090}\n  cors: {allowed_origins: [https://a.example, https://b.example]}\n", "server.port", 3},
		{"the type", "server:\n  port: ${PORT:8080}\n  cors: {allowed_origins: [https://a.example, https://b.example]}\n  tls: {enabled: 'false'}\n", "server.tls.enabled", 4},
		{"an item", "server:\n  port: ${PORT:8080}\n  cors: {allowed_origins: [https://a.example, 'https://c.example']}\n  tls: {enabled: false}\n", "server.cors.allowed_origins[1]", 3},
		{"an item less", "server:\n  port: ${PORT:8080}\n  cors: {allowed_origins: [https://a.example]}\n  tls: {enabled: false}\n", "server.cors.allowed_origins[1]", 3},
		{"a key less", "server:\n  port: ${PORT:8080}\n  cors: {allowed_origins: [https://a.example, https://b.example]}\n", "server.tls", 1},
		{"a key more", before + "  host: 127.0.0.1\n", "server.host", 6},
		{"by an anchor", "x: &s {port: 1}\nserver: *s\n", "server.port", 1},
		{"no YAML", "server: [", "", 0},
		{"no server", "name: x\n", "server", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at, differs := FindDifference([]byte(before), []byte(tt.after), "server")
			if differs != (tt.want != "") {
				t.Fatalf("differs: %v at %s", differs, at.Path)
			}
			if !differs {
				return
			}
			if p := at.NewProblem("x"); p.Path != tt.want || p.Line != tt.line {
				t.Errorf("%s in line %d, want %s in line %d", p.Path, p.Line, tt.want, tt.line)
			}
		})
	}
	if _, differs := FindDifference([]byte("name: x"), []byte("name: y"), "server"); differs {
		t.Error("two documents without the key differ in it")
	}
}
