package trigger

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"stoa/agentsvc/pattern"
)

// Bounds of a template's execution, for any template and any body.
const (
	// maxTextBytes bounds the result, and every text on the way to it.
	maxTextBytes = 256 << 10
	// maxMadeBytes bounds all that the functions return in one execution together: an action keeps the arguments of
	// all calls in it, and a variable its value.
	maxMadeBytes = 4 * maxTextBytes
	// maxSteps bounds the actions, the loop iterations and the calls of functions.
	maxSteps = 100_000
	// maxExecutionTime bounds the time of one execution, without the time it waits for its turn of the processor.
	maxExecutionTime = time.Second
)

// errTooLarge reports that an execution has exceeded one of the bounds.
var errTooLarge = errors.New("it exceeds the limits of templates")

// newTemplateFuncs returns the functions that templates may call in the execution x. Each takes bounded time, returns at
// most maxTextBytes, and is paid for from x. They replace the built-in functions of the same names.
func newTemplateFuncs(x *execution) template.FuncMap {
	return template.FuncMap{
		"json":  func(v any) (string, error) { return x.pay(encodeJSON(v)) },
		"print": func(vs ...any) (string, error) { return x.pay(printValues(vs)) },
		"upper": func(s string) (string, error) { return x.pay(strings.ToUpper(s)) },
		"lower": func(s string) (string, error) { return x.pay(strings.ToLower(s)) },
		"trim":  func(s string) (string, error) { return strings.TrimSpace(s), x.step() },
		"join":  x.join,
		"default": func(usual, v any) (any, error) {
			if v == nil || reflect.ValueOf(v).IsZero() {
				v = usual
			}
			return v, x.step()
		},
	}
}

// templateFuncs are the functions that are known while templates are parsed. An execution has its own.
var templateFuncs = newTemplateFuncs(nil)

// builtinFuncs are the functions of text/template that templates may call as well. The others, such as printf, can
// produce texts without bound.
var builtinFuncs = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"}

// Bounds of a template's source.
const (
	maxTemplateBytes = 64 << 10
	// maxArguments bounds the arguments of one action: nothing is looked at while a built-in function compares them.
	maxArguments = 256
)

// stepFuncName is the function that instrumentNode inserts before each action and in each loop iteration. Templates
// cannot call it: it is not defined while they are parsed.
const stepFuncName = "step"

// printValues returns values as text, with spaces between them. It stops soon after maxTextBytes.
func printValues(vs []any) string {
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(formatValue(v)); b.Len() > maxTextBytes {
			// The caller checks the length and returns the error.
			break
		}
	}
	return b.String()
}

// Template is a text/template with bounds on what it can call and produce. It is safe for concurrent use.
type Template struct {
	app    string
	parsed *template.Template
}

// ParseTemplate parses a template of app, whose share of the processors its executions use. The error may be shown to
// its author.
func ParseTemplate(app, src string) (*Template, error) {
	t, err := parseTemplate(src)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	return &Template{app, t}, nil
}

// RenderText executes the template on data. Beyond the bounds it returns errTooLarge, and ctx.Err() if ctx ends.
func (t *Template) RenderText(ctx context.Context, data any) (string, error) {
	return executeTemplate(ctx, t.app, t.parsed, data)
}

// parseTemplate parses a template and instruments it.
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

// instrumentNode returns an error if a node calls what templates may not, and inserts the counting action before each
// node below it that is not text. A loop's body is a list, which begins with one, so empty bodies count as well.
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
			if nested.Type() != parse.NodeText {
				nodes = append(nodes, newStepNode())
			}
			nodes = append(nodes, nested)
		}
		n.Nodes = nodes
	case *parse.ActionNode:
		return instrumentPipe(n.Pipe)
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

// instrumentPipe instruments the pipe of an action, which may have at most maxArguments.
func instrumentPipe(n *parse.PipeNode) error {
	if countArguments(n) > maxArguments {
		return fmt.Errorf("has more than %d arguments in one action", maxArguments)
	}
	return instrumentNode(n)
}

// countArguments returns the number of arguments below a node, those of calls in parentheses included.
func countArguments(n parse.Node) int {
	count := 1
	switch n := n.(type) {
	case *parse.PipeNode:
		if n == nil {
			return 0
		}
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				count += countArguments(arg)
			}
		}
	case *parse.ChainNode:
		count += countArguments(n.Node)
	}
	return count
}

// newStepNode returns an action that calls stepFuncName. It prints nothing.
func newStepNode() parse.Node {
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(stepFuncName)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{call}}}
}

// instrumentBranch instruments an if, with or range node.
func instrumentBranch(n *parse.BranchNode) error {
	return errors.Join(instrumentPipe(n.Pipe), instrumentNode(n.List), instrumentNode(n.ElseList))
}

// execution is what one execution of a template has taken. An execution takes turns of the processor with other long
// computations, see [pattern.StepBudget].
type execution struct {
	work  *pattern.StepBudget
	began time.Time     // of the piece of work since the last step
	spent time.Duration // before that
	steps int
	made  int // bytes that functions have returned
}

// stepCost is the price of a step, in steps of the work: an action takes as long as some comparisons of a pattern.
const stepCost = 32

// step counts an action, a loop iteration or a call. It returns errTooLarge beyond the bounds, and the context's error.
func (e *execution) step() error { return e.spend(0) }

// spend counts a step that has made some bytes.
func (e *execution) spend(size int) error {
	e.steps++
	e.made += size
	e.spent += time.Since(e.began)
	if size > maxTextBytes || e.made > maxMadeBytes || e.steps > maxSteps || e.spent > maxExecutionTime {
		return errTooLarge
	}
	err := e.work.SpendSteps(stepCost + size)
	e.began = time.Now()
	return err
}

// pay returns a text that a function has made, if the execution may have it.
func (e *execution) pay(s string) (string, error) {
	if err := e.spend(len(s)); err != nil {
		return "", err
	}
	return s, nil
}

// join returns the values of a list with sep between them. A value counts as a byte at least.
func (e *execution) join(sep string, list []any) (string, error) {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(formatValue(v))
		if b.Len() > maxTextBytes || e.made+i > maxMadeBytes {
			return "", errTooLarge
		}
	}
	e.made += len(list)
	return e.pay(b.String())
}

// executeTemplate executes a clone of a template, so that concurrent executions are independent.
func executeTemplate(ctx context.Context, app string, t *template.Template, data any) (string, error) {
	t, err := t.Clone()
	if err != nil {
		return "", err
	}
	x := &execution{work: pattern.NewStepBudget(ctx, app, 0), began: time.Now()}
	x.work.BeginComputation()
	defer x.work.EndComputation()
	t.Funcs(newTemplateFuncs(x)).Funcs(template.FuncMap{stepFuncName: func() (string, error) { return "", x.step() }})
	var b cappedBuilder
	switch err := t.Execute(&b, data); {
	case err == nil:
		return b.String(), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, errTooLarge), errors.Is(err, pattern.ErrTooManySteps):
		return "", errTooLarge
	default:
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
}

// cappedBuilder is a strings.Builder that returns errTooLarge instead of growing beyond maxTextBytes.
type cappedBuilder struct{ strings.Builder }

func (c *cappedBuilder) Write(p []byte) (int, error) {
	if c.Len()+len(p) > maxTextBytes {
		return 0, errTooLarge
	}
	return c.Builder.Write(p)
}
