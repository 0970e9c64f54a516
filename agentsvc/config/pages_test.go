package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config/document"
)

// pages are the pages of docs that end with a table of the keys of some structs.
var pages = []struct {
	file string
	of   map[string]reflect.Type // by the path of the struct
}{
	{"agents", map[string]reflect.Type{"agents.<name>": reflect.TypeFor[Agent]()}},
	{"models", map[string]reflect.Type{"llms.<name>": reflect.TypeFor[LLM]()}},
	{"tools", map[string]reflect.Type{"tools.<name>": reflect.TypeFor[Tool]()}},
	{"guardrails", map[string]reflect.Type{"guardrails.<name>": reflect.TypeFor[Guardrail]()}},
	{"triggers", map[string]reflect.Type{"agents.<name>.trigger": reflect.TypeFor[Trigger]()}},
	{"vector-stores", map[string]reflect.Type{"vector_stores.<name>": reflect.TypeFor[VectorStore]()}},
	{"memory", map[string]reflect.Type{
		"agents.<name>.context": reflect.TypeFor[Context](), "storage.memory": reflect.TypeFor[Memory](), "embedders.<name>": reflect.TypeFor[Embedder](),
	}},
}

const keysHeading = "## Every key\n"

// TestPages compares the tables of keys in docs with the structs, and the keys and defaults that the text of the
// pages mentions.
func TestPages(t *testing.T) {
	t.Parallel()
	comments := newReflector(t).CommentMap
	for _, page := range pages {
		t.Run(page.file, func(t *testing.T) {
			t.Parallel()
			file := "../../docs/" + page.file + ".md"
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			reported, _, _ := strings.Cut(string(src), keysHeading)
			r := &reference{comments: comments}
			r.WriteString(reported + keysHeading + "\nThe text is that of the [configuration reference](configuration.md).\n")
			known := map[string]document.Field{}
			for _, path := range slices.Sorted(maps.Keys(page.of)) {
				fmt.Fprintf(r, "\n`%s`:\n\n| Key | Default | Meaning |\n|---|---|---|\n", path)
				r.writeKeys(path, "", page.of[path], known)
			}
			if *update {
				if err := os.WriteFile(file, []byte(r.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(r.String(), string(src)); diff != "" {
				t.Errorf("the table of every key is stale; run go generate (-want +got):\n%s", diff)
			}
			checkKeys(t, reported, known)
		})
	}
}

// writeKeys writes a row for each key of t, which is at path, and for each key below it, and adds them to known by
// their names after prefix.
func (r *reference) writeKeys(path, prefix string, t reflect.Type, known map[string]document.Field) {
	for _, f := range document.FieldsOf(t) {
		name := prefix + f.Name
		known[name] = f
		if _, taken := known[f.Name]; !taken {
			known[f.Name] = f
		}
		fmt.Fprintf(r, "| `%s` | %s | %s |\n", name, formatDefault(f), r.describeField(path, t, f))
		field := t.Field(f.Index).Type
		if child := elementType(field); child.Kind() == reflect.Struct {
			if field.Kind() == reflect.Slice {
				name += "[]"
			}
			r.writeKeys(joinPath(path, strings.TrimPrefix(name, prefix)), name+".", child, known)
		}
	}
}

var backticked = regexp.MustCompile("`([^`]+)`")

// checkKeys checks the tables of a page whose first column is headed Key: each key must be known, with its actual
// default.
func checkKeys(t *testing.T, page string, known map[string]document.Field) {
	t.Helper()
	var head []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			head = nil
		case head == nil:
			head = cells
		case !slices.Contains(head, "Key"):
		default:
			for _, key := range backticked.FindAllStringSubmatch(cells[slices.Index(head, "Key")], -1) {
				f, ok := known[key[1]]
				if !ok {
					t.Errorf("there is no key %s: %s", key[1], line)
				}
				i := slices.Index(head, "Default")
				if got := strings.Join(f.Defaults, ", "); i >= 0 && len(f.Defaults) > 0 && got != "false" && strings.ReplaceAll(cells[i], "`", "") != got {
					t.Errorf("the default of %s is %s: %s", key[1], got, line)
				}
			}
		}
	}
}
