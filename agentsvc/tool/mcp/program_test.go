package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// runTestProgram is the program of a test server; act selects its behaviour.
func runTestProgram(act string) {
	folder := os.Getenv("MCP_TEST_FOLDER")
	writeMarker := func(name, text string) {
		_ = os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)
	}
	writeMarker(fmt.Sprintf("started-%d", os.Getpid()), strings.Join(os.Environ(), "\n"))
	s := newShopServer()
	switch act {
	case "quits":
		os.Exit(3)
	case "garbage":
		fmt.Println("Welcome to my server!")
	case "endless line":
		w := bufio.NewWriterSize(os.Stdout, 1<<20)
		_, _ = w.WriteString(`{"jsonrpc":"2.0","method":"x","params":{"text":"`)
		for range 1 << 10 {
			if _, err := w.WriteString(strings.Repeat("a", 1<<20)); err != nil {
				return
			}
		}
		return
	case "mute":
		time.Sleep(time.Hour)
	case "pings":
		servePings()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("sleep", "3600")
		if child.Start() == nil {
			writeMarker(fmt.Sprintf("child-%d", child.Process.Pid), "")
		}
		_ = s.Run(context.Background(), &sdk.StdioTransport{})
		time.Sleep(time.Hour)
	}
	addTool(s, "die", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { os.Exit(4); return nil, nil })
	addTool(s, "flood", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		line := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("a", 1<<19) + `"}}` + "\n")
		for range 1 << 11 {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(5)
			}
		}
		writeMarker("flooded", "")
		return textResult("flooded"), nil
	})
	addTool(s, "wait", "", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		writeMarker("waiting", "")
		<-ctx.Done()
		writeMarker("cancelled", "")
		return nil, ctx.Err()
	})
	_ = s.Run(context.Background(), &sdk.StdioTransport{})
}

// servePings answers the handshake and the first listing, then prints pings without end and reads nothing more.
func servePings() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.Unmarshal(in.Bytes(), &request)
		switch request.Method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`+"\n", request.ID)
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"boom","inputSchema":{"type":"object"}}]}}`+"\n", request.ID)
			for i := range 200_000 {
				if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`+"\n", i); err != nil {
					return
				}
			}
			time.Sleep(time.Hour)
		case "server/discover":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", request.ID)
		}
	}
	os.Exit(0)
}
