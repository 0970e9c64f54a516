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
	maxTextBytes     = 256 << 10 // bytes of a message, and of a text on the way to it
	maxSteps         = 100_000   // actions and turns of loops
	maxExecutionTime = time.Second
)

var errTooLarge = errors.New("it makes too much of the body")

// templateFuncs are those that a template may call: they take bounded time, and make no more than maxTextBytes of anything.
var templateFuncs = template.FuncMap{
	"json":  func(v any) (string, error) { return limitText(encodeJSON(v)) },
	"print": func(vs ...any) (string, error) { return limitText(printValues(vs)) },
	"upper": func(s string) (string, error) { return limitText(strings.ToUpper(s)) },
	"lower": func(s string) (string, error) { return limitText(strings.ToLower(s)) },
	"trim":  strings.TrimSpace,
	"join": func(sep string, list []any) (string, error) {
		parts, size := make([]string, len(list)), 0
		for i, v := range list {
			parts[i] = formatValue(v)
			if size += len(parts[i]) + len(sep); size > maxTextBytes {
				return "", errTooLarge
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

// builtinFuncs are the functions of text/template that a template may call beside them.
var builtinFuncs = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"}

// maxTemplateBytes bounds a template, in bytes.
const maxTemplateBytes = 64 << 10

// stepFuncName is what is called before each action, and at each turn of a loop. No template can call it: it is not there when one is read.
const stepFuncName = "step"

func limitText(s string) (string, error) {
	if len(s) > maxTextBytes {
		return "", errTooLarge
	}
	return s, nil
}

// printValues is what values look like side by side.
func printValues(vs []any) string {
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(formatValue(v)); b.Len() > maxTextBytes {
			break // told by the caller
		}
	}
	return b.String()
}

// Template makes texts of data, and is bounded in what it can do.
type Template struct{ parsed *template.Template }

// ParseTemplate reads a template. What is wrong with it may be shown to whoever has written it.
func ParseTemplate(src string) (*Template, error) {
	t, err := parseTemplate(src)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	return &Template{t}, nil
}

// RenderText makes a text of data.
func (t *Template) RenderText(data any) (string, error) { return executeTemplate(t.parsed, data) }

func parseTemplate(src string) (*template.Template, error) {
	if len(src) > maxTemplateBytes {
		return nil, fmt.Errorf("is longer than %d bytes", maxTemplateBytes)
	}
	t, err := template.New("template").Funcs(templateFuncs).Option("missingkey=zero").Parse(src)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: template:"))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("defines another template: there can be one only")
	}
	if t.Tree == nil || t.Root == nil {
		return t, nil
	}
	return t, instrumentNode(t.Root)
}

// instrumentNode refuses what a template may not do below a node, and has each step be counted.
func instrumentNode(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		nodes := []parse.Node{newStepNode()}
		for _, nested := range n.Nodes {
			if err := instrumentNode(nested); err != nil {
				return err
			}
			if nested.Type() == parse.NodeAction {
				nodes = append(nodes, newStepNode())
			}
			nodes = append(nodes, nested)
		}
		n.Nodes = nodes
	case *parse.ActionNode:
		return instrumentNode(n.Pipe)
	case *parse.IfNode:
		return instrumentBranch(&n.BranchNode)
	case *parse.WithNode:
		return instrumentBranch(&n.BranchNode)
	case *parse.RangeNode:
		return instrumentBranch(&n.BranchNode)
	case *parse.PipeNode:
		if n == nil {
			return nil
		}
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				if err := instrumentNode(arg); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return instrumentNode(n.Node)
	case *parse.TemplateNode:
		return errors.New("calls another template: there is one only")
	case *parse.IdentifierNode:
		if _, ours := templateFuncs[n.Ident]; !ours && !slices.Contains(builtinFuncs, n.Ident) {
			return fmt.Errorf("calls %s, which is not among the functions of templates here", n.Ident)
		}
	}
	return nil
}

// newStepNode is the action that counts.
func newStepNode() parse.Node {
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(stepFuncName)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{call}}}
}

func instrumentBranch(n *parse.BranchNode) error {
	return errors.Join(instrumentNode(n.Pipe), instrumentNode(n.List), instrumentNode(n.ElseList))
}

// executeTemplate makes a message of data.
func executeTemplate(t *template.Template, data any) (string, error) {
	t, err := t.Clone()
	if err != nil {
		return "", err
	}
	steps, until := 0, time.Now().Add(maxExecutionTime)
	t.Funcs(template.FuncMap{stepFuncName: func() (string, error) {
		if steps++; steps > maxSteps || time.Now().After(until) {
			return "", errTooLarge
		}
		return "", nil
	}})
	var b cappedBuilder
	if err := t.Execute(&b, data); err != nil {
		if errors.Is(err, errTooLarge) {
			return "", errTooLarge
		}
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return b.String(), nil
}

// cappedBuilder is a text that does not grow beyond maxTextBytes.
type cappedBuilder struct{ strings.Builder }

func (c *cappedBuilder) Write(p []byte) (int, error) {
	if c.Len()+len(p) > maxTextBytes {
		return 0, errTooLarge
	}
	return c.Builder.Write(p)
}
