package mcp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/db/dbtest"
)

// findReferenceServer returns the path of a reference server's program.
func findReferenceServer(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("STOA_TEST_MCP_SERVERS")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_MCP_SERVERS (the folder that .ci/mcp-servers prints) the reference MCP servers are not tested")
	}
	return filepath.Join(folder, name)
}

// startReferenceServer starts the reference server on a port and returns its address.
func startReferenceServer(t *testing.T, transport, path string) string {
	t.Helper()
	program := findReferenceServer(t, "mcp-server-everything")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(program, transport)
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	dbtest.WaitUntil(t, "the reference server listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + address + path
}

// TestEverything uses the reference server over every transport.
func TestEverything(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		options func(t *testing.T) mcp.Options
	}{
		{"stdio", func(t *testing.T) mcp.Options {
			return mcp.Options{Command: findReferenceServer(t, "mcp-server-everything"), Args: []string{"stdio"}, Env: map[string]string{"GREETING": "hello"}}
		}},
		{"streamable HTTP", func(t *testing.T) mcp.Options {
			return mcp.Options{URL: startReferenceServer(t, "streamableHttp", "/mcp")}
		}},
		{"SSE", func(t *testing.T) mcp.Options { return mcp.Options{URL: startReferenceServer(t, "sse", "/sse")} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := newSource(t, tt.options(t))
			have := toolsByName(t, src)
			for _, c := range []struct{ tool, arguments, want string }{
				{"echo", `{"message":"hi"}`, "Echo: hi"},
				{"get-sum", `{"a":2,"b":40}`, "The sum of 2 and 40 is 42."},
				{"get-tiny-image", `{}`, "Here's the image you requested:\n[image image/png, "},
				{"get-structured-content", `{"location":"Chicago"}`, `{"temperature":36,`},
				{"get-resource-reference", `{"resourceType":"Text","resourceId":1}`, "Returning resource reference for Resource 1:"},
				{"echo", `{}`, "error: "},
			} {
				if got := callTool(t, have[c.tool], c.arguments); !strings.HasPrefix(got, c.want) {
					t.Errorf("%s answered %q, want %q", c.tool, got, c.want)
				}
			}
			for _, offered := range []string{"trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"} {
				if have[offered] != nil {
					t.Errorf("the server offers %s, as if we had offered it something", offered)
				}
			}
			limitedCtx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := have["trigger-long-running-operation"].Call(limitedCtx, tool.Call{Arguments: []byte(`{"duration":30,"steps":3}`)})
			if err == nil || time.Since(began) > 5*time.Second {
				t.Errorf("the long call: %v after %v", err, time.Since(began))
			}
			if got := callTool(t, have["echo"], `{"message":"still"}`); got != "Echo: still" {
				t.Errorf("after it: %q", got)
			}
		})
	}
}

// TestFilesystem checks that the reference server can read and write a folder, and sees nothing of this process's
// environment.
func TestFilesystem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	src := newSource(t, mcp.Options{
		Command: findReferenceServer(t, "mcp-server-filesystem"), Args: []string{folder}, Filter: []string{"write_file", "read_text_file", "list_directory"},
	})
	have := toolsByName(t, src)
	if len(have) != 3 {
		t.Errorf("%d tools", len(have))
	}
	file := filepath.Join(folder, "a.txt")
	callTool(t, have["write_file"], fmt.Sprintf(`{"path":%q,"content":"words"}`, file))
	if text, err := os.ReadFile(file); string(text) != "words" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if got := callTool(t, have["read_text_file"], fmt.Sprintf(`{"path":%q}`, file)); got != "words" {
		t.Errorf("read %q", got)
	}
	if got := callTool(t, have["read_text_file"], `{"path":"/etc/passwd"}`); !strings.HasPrefix(got, "error: ") || strings.Contains(got, "root:") {
		t.Errorf("read %q", got)
	}
	var again []string
	for name, tl := range have {
		if tl.IsIdempotent() {
			again = append(again, name)
		}
	}
	slices.Sort(again)
	if !slices.Equal(again, []string{"list_directory", "read_text_file"}) {
		t.Errorf("by their own word %v may run again", again)
	}
}
