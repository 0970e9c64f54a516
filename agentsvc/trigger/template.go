package trigger

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

// Bounds of what a template may make of a body, whoever has written it and whatever is sent.
const (
	maxText  = 256 << 10 // bytes of a message, and of a text on the way to it
	maxSteps = 100_000   // actions and turns of loops
	maxTime  = time.Second
)

var errTooMuch = errors.New("it makes too much of the body")

// functions are those that a template may call: they take bounded time, and make no more than maxText of anything.
var functions = template.FuncMap{
	"json":  func(v any) (string, error) { return bounded(inJSON(v)) },
	"print": func(vs ...any) (string, error) { return bounded(printed(vs)) },
	"upper": func(s string) (string, error) { return bounded(strings.ToUpper(s)) },
	"lower": func(s string) (string, error) { return bounded(strings.ToLower(s)) },
	"trim":  strings.TrimSpace,
	"join": func(sep string, list []any) (string, error) {
		parts, size := make([]string, len(list)), 0
		for i, v := range list {
			parts[i] = text(v)
			if size += len(parts[i]) + len(sep); size > maxText {
				return "", errTooMuch
			}
		}
		return strings.Join(parts, sep), nil
	},
	"default": func(usual, v any) any {
		if v == nil || reflect.ValueOf(v).IsZero() {
			return usual
		}
		return v
	},
}

// builtin are the functions of text/template that a template may call beside them.
var builtin = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"}

// maxSource bounds a template, in bytes.
const maxSource = 64 << 10

// stepName is what is called before each action, and at each turn of a loop. No template can call it: it is not there when one is read.
const stepName = "step"

func bounded(s string) (string, error) {
	if len(s) > maxText {
		return "", errTooMuch
	}
	return s, nil
}

// printed is what values look like side by side.
func printed(vs []any) string {
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(text(v)); b.Len() > maxText {
			break // told by the caller
		}
	}
	return b.String()
}

// Template makes texts of data, and is bounded in what it can do.
type Template struct{ t *template.Template }

// ParseTemplate reads a template. What is wrong with it may be shown to whoever has written it.
func ParseTemplate(src string) (*Template, error) {
	t, err := parseTemplate(src)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	return &Template{t}, nil
}

// Text makes a text of data.
func (t *Template) Text(data any) (string, error) { return execute(t.t, data) }

func parseTemplate(src string) (*template.Template, error) {
	if len(src) > maxSource {
		return nil, fmt.Errorf("is longer than %d bytes", maxSource)
	}
	t, err := template.New("template").Funcs(functions).Option("missingkey=zero").Parse(src)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: template:"))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("defines another template: there can be one only")
	}
	if t.Tree == nil || t.Root == nil {
		return t, nil
	}
	return t, bind(t.Root)
}

// bind refuses what a template may not do below a node, and has each step be counted.
func bind(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		nodes := []parse.Node{step()}
		for _, below := range n.Nodes {
			if err := bind(below); err != nil {
				return err
			}
			if below.Type() == parse.NodeAction {
				nodes = append(nodes, step())
			}
			nodes = append(nodes, below)
		}
		n.Nodes = nodes
	case *parse.ActionNode:
		return bind(n.Pipe)
	case *parse.IfNode:
		return bindBranch(&n.BranchNode)
	case *parse.WithNode:
		return bindBranch(&n.BranchNode)
	case *parse.RangeNode:
		return bindBranch(&n.BranchNode)
	case *parse.PipeNode:
		if n == nil {
			return nil
		}
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				if err := bind(arg); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return bind(n.Node)
	case *parse.TemplateNode:
		return errors.New("calls another template: there is one only")
	case *parse.IdentifierNode:
		if _, ours := functions[n.Ident]; !ours && !slices.Contains(builtin, n.Ident) {
			return fmt.Errorf("calls %s, which is not among the functions of templates here", n.Ident)
		}
	}
	return nil
}

// step is the action that counts.
func step() parse.Node {
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(stepName)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{call}}}
}

func bindBranch(n *parse.BranchNode) error {
	return errors.Join(bind(n.Pipe), bind(n.List), bind(n.ElseList))
}

// execute makes a message of data.
func execute(t *template.Template, data any) (string, error) {
	t, err := t.Clone()
	if err != nil {
		return "", err
	}
	steps, until := 0, time.Now().Add(maxTime)
	t.Funcs(template.FuncMap{stepName: func() (string, error) {
		if steps++; steps > maxSteps || time.Now().After(until) {
			return "", errTooMuch
		}
		return "", nil
	}})
	var b capped
	if err := t.Execute(&b, data); err != nil {
		if errors.Is(err, errTooMuch) {
			return "", errTooMuch
		}
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return b.String(), nil
}

// capped is a text that does not grow beyond maxText.
type capped struct{ strings.Builder }

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > maxText {
		return 0, errTooMuch
	}
	return c.Builder.Write(p)
}
