package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/config/configfile"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/runtime"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// studioFile is the operator's file as the studio reads and writes it (ConfigFile of the package ext). It is read-only; what changes is in app.
type studioFile struct {
	app *DefaultApp
	// path is the file that is read and written: server.studio.config_path, or the operator's file.
	path string
	apps *tenancy.Service
	deps runtime.Dependencies
	log  *slog.Logger
}

// ReadConfig returns the text of the file and the tag that identifies it.
func (f *studioFile) ReadConfig() (text []byte, tag string, err error) {
	text, err = configfile.Read(f.path)
	if err != nil {
		return nil, "", f.newError(err, "cannot be read")
	}
	return text, textTag(text), nil
}

// textTag returns the entity tag of a text: the first half of its SHA-256 hash.
func textTag(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// SaveConfig replaces the text if the present one has a tag of ifMatch. It holds the lock of reloads, so that what is compared is what is replaced.
// The text is checked as a reload checks it before the file is written.
func (f *studioFile) SaveConfig(ctx context.Context, actor audit.Actor, text []byte, ifMatch []string) (tag, note string, err error) {
	f.app.reloads.Lock()
	defer f.app.reloads.Unlock()
	cfg, err := f.checkText(text, ifMatch)
	if err != nil {
		return "", "", err
	}
	if err := configfile.Replace(f.path, text); err != nil {
		return "", "", f.newError(err, "cannot be written")
	}
	f.app.apply(cfg, text, f.apps, f.deps)
	f.log.InfoContext(ctx, "the configuration was saved in the studio", "file", f.path, "actor", actor.Name)
	if err := f.apps.DefaultApp.Audit(ctx, actor); err != nil {
		f.log.ErrorContext(ctx, "the saved configuration is in force but could not be written to the audit trail", "file", f.path, "error", err)
	}
	note = "The configuration is saved and in force. Running tasks end with the one that they began with."
	if late := f.app.keysAwaitingRestart(); len(late) > 0 {
		note += " These keys act after a restart: " + strings.Join(late, ", ") + "."
	}
	return textTag(text), note, nil
}

// CheckConfig returns the error with which SaveConfig would refuse a text before it writes the file.
func (f *studioFile) CheckConfig(text []byte, ifMatch []string) error {
	f.app.reloads.Lock()
	defer f.app.reloads.Unlock()
	_, err := f.checkText(text, ifMatch)
	return err
}

// checkText checks a text against the file as it stands, and returns its configuration.
func (f *studioFile) checkText(text []byte, ifMatch []string) (*config.Config, error) {
	before, current, err := f.ReadConfig()
	if err != nil {
		return nil, err
	}
	if ifMatch != nil && !slices.Contains(ifMatch, current) {
		return nil, agentsvc.NewError(agentsvc.CodePrecondition, "the file has changed since it was read: read it again and apply the change to its present text")
	}
	// The server block decides who may write the file. It can only be changed by those who have the file.
	if at, differs := document.FindDifference(before, text, "server"); differs {
		return nil, &document.Error{Problems: []document.Problem{at.NewProblem("cannot be changed here: the server block changes only in the file itself")}}
	}
	return checkOperatorConfig(f.app.path, text, f.deps)
}

// newError returns the error of a file operation without the path, which callers need not know. The log has the cause.
func (f *studioFile) newError(cause error, what string) error {
	f.log.Error("the configuration file "+what, "file", f.path, "error", cause)
	reason := "the log of the server has the reason"
	switch {
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		reason = "its disk is full"
	case errors.Is(cause, os.ErrPermission), errors.Is(cause, syscall.EROFS):
		reason = "the server may not do that; it also writes to the folder of the file"
	case errors.Is(cause, os.ErrNotExist):
		reason = "it does not exist"
	}
	return &agentsvc.Error{Code: agentsvc.CodeUnavailable, Message: fmt.Sprintf("the configuration file %s: %s; nothing was changed", what, reason), Err: cause}
}
