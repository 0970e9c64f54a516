package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/tool/mcp"
)

// TestCostlySchemas lists tools whose schemas are within the bounds of one schema, and take gigabytes together.
func TestCostlySchemas(t *testing.T) {
	t.Parallel()
	repeat := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return strings.Join(items, ",")
	}
	tests := []struct {
		name, schema string
		tools, want  int
	}{
		{"parts", `{"type":"object","anyOf":[` + repeat(5_000, func(int) string { return "{}" }) + `]}`, 20, 3},
		{"expressions", `{"type":"object","anyOf":[{"pattern":"a{1,900}"},{"pattern":"b{1,900}"}]}`, 40, 5},
		{"usual", `{"type":"object","properties":{` + repeat(30, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}`, 300, 300},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := sdk.NewServer(&sdk.Implementation{Name: "costly", Version: "1"}, nil)
			for i := range tt.tools {
				server.AddTool(&sdk.Tool{Name: fmt.Sprintf("t%03d", i), InputSchema: json.RawMessage(tt.schema)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					return textResult(""), nil
				})
			}
			src := newSource(t, mcp.Options{URL: startServer(t, newStreamableHandler(t, server)).URL})
			list, err := src.ListTools(t.Context(), agentsvc.SessionKey{})
			if err != nil || len(list) != tt.want {
				t.Errorf("%d tools, %v, want %d", len(list), err, tt.want)
			}
		})
	}
}
