package main

import (
	"context"
	"errors"
)

// confirmFlag is the flag of the commands that ask before they do what cannot be undone.
type confirmFlag struct {
	Yes bool `short:"y" help:"Do not ask. Needed where there is no terminal to ask at."`
}

// confirm asks at the terminal with ask, which reports whether the user agreed to action. Without a terminal only --yes
// confirms: what a pipe contains was not written as the answer to this question.
func (f confirmFlag) confirm(c *console, action string, ask func() bool) error {
	switch {
	case f.Yes:
		return nil
	case !c.interactive:
		return &exitError{code: exitUsage, cause: errors.New("no terminal to ask at: add --yes to " + action)}
	case !ask():
		return errors.New("not confirmed: nothing more was done")
	}
	return nil
}

// confirmYes is confirm with a question that yes or no answers.
func (f confirmFlag) confirmYes(ctx context.Context, c *console, action string) error {
	return f.confirm(c, action, func() bool { return c.promptYesNo(ctx, action+"? [y/n] ") == "approve" })
}
