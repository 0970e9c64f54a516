package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"stoa/authz"
)

// docsPutCmd is `stoa docs put`.
type docsPutCmd struct {
	storeFlags     `embed:""`
	confirmFlag    `embed:""`
	Paths          []string          `arg:"" name:"path" help:"Files, or folders with all files below them. A document's id is its path below the folder, or the file's name."`
	AccessSubject  []string          `placeholder:"SUBJECT" help:"Only this user may read the documents; may be repeated."`
	AccessRole     []string          `placeholder:"ROLE" help:"Only users with this role may read the documents; may be repeated."`
	AccessEveryone bool              `help:"All callers of the app may read the documents, also those that had an access of their own."`
	Metadata       map[string]string `placeholder:"NAME=VALUE" help:"Metadata of the documents, by which searches can filter; may be repeated."`
	Wait           bool              `help:"Wait until the documents are indexed."`
	DeleteMissing  bool              `help:"Delete the documents of the store that are not among the files, after asking."`
}

// Help returns the text about the outcomes that kong appends to --help.
func (cmd *docsPutCmd) Help() string {
	return "Prints for each file what became of it: new, changed, updated (metadata or access alone), unchanged or refused, with the reason. " +
		"Files and folders whose names begin with a dot are left out. An upload replaces the document's metadata. " +
		"Without a flag for the access, a document that exists keeps its access, and all callers may read a new one. " +
		"The exit code is 1 if a file was refused or, with --wait, could not be indexed."
}

// localFile is a file to upload.
type localFile struct {
	id, path string
	bytes    int64
	// refused is why the file cannot be uploaded, "" if it can.
	refused string
}

// outcomeWords are the outcomes of an upload as put shows them.
var outcomeWords = map[string]string{"created": "new", "changed": "changed", "updated": "updated", "unchanged": "unchanged"}

// refusedWord is the outcome of a file that the server or this machine refuses.
const refusedWord = "refused"

// Run uploads the files one after the other, so that a store's limits refuse the last ones and not any.
func (cmd *docsPutCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	files, err := listLocalFiles(cmd.Paths)
	if err != nil {
		return err
	}
	if cmd.AccessEveryone && cmd.namesReaders() {
		return &exitError{code: exitUsage, cause: errors.New("--access-everyone excludes --access-subject and --access-role")}
	}
	header, err := cmd.newHeader()
	if err != nil {
		return err
	}
	p := newPutProgress(c, len(files))
	var sent []string
	for _, f := range files {
		outcome, reason, err := cmd.putFile(ctx, api, header, f)
		if err != nil {
			p.finish()
			return err
		}
		if outcome == "new" || outcome == "changed" || outcome == "unchanged" {
			sent = append(sent, f.id)
		}
		p.report(outcome, f.id, reason)
	}
	p.finish()
	failed := p.counts[refusedWord]
	if cmd.Wait {
		n, err := cmd.awaitIndexed(ctx, c, api, sent)
		if err != nil {
			return err
		}
		failed += n
	}
	if cmd.DeleteMissing {
		if err := cmd.deleteMissing(ctx, c, api, files); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exitError{code: exitFailed} // the lines above have the reasons
	}
	return nil
}

// listLocalFiles returns the files of paths, in which each id must be unique.
func listLocalFiles(paths []string) (files []localFile, err error) {
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, newLocalFile(filepath.Base(root), root, info))
			continue
		}
		err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name != root && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
				return nil
			case entry.IsDir():
				return nil
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			files = append(files, newLocalFile(filepath.ToSlash(relative), name, info))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	byID := map[string]string{}
	for _, f := range files {
		if other, twice := byID[f.id]; twice {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf("%s and %s would both be the document %q: upload them from one folder", other, f.path, f.id)}
		}
		byID[f.id] = f.path
	}
	if len(files) == 0 {
		return nil, errors.New("there are no files to upload in " + strings.Join(paths, ", "))
	}
	return files, nil
}

// maxUpload is the size of the largest document that a server takes, in bytes.
const maxUpload = 20 << 20

// newLocalFile returns a file, refused if it is no regular file: a link may lead out of the folder.
func newLocalFile(id, name string, info fs.FileInfo) localFile {
	f := localFile{id: id, path: name, bytes: info.Size()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		f.refused = "it is a symbolic link"
	case !info.Mode().IsRegular():
		f.refused = "it is no regular file"
	case f.bytes == 0:
		f.refused = "it is empty"
	case f.bytes > maxUpload:
		f.refused = fmt.Sprintf("it has %d MiB, %d are allowed", f.bytes>>20, maxUpload>>20)
	}
	return f
}

// namesReaders reports whether flags say who may read the documents.
func (cmd *docsPutCmd) namesReaders() bool { return len(cmd.AccessSubject)+len(cmd.AccessRole) > 0 }

// keepAccess sets the header that gives a document the access that it has, so that a folder that is uploaded again opens
// nothing.
func (cmd *docsPutCmd) keepAccess(ctx context.Context, api *client, header http.Header, id string) error {
	if cmd.AccessEveryone || cmd.namesReaders() {
		return nil
	}
	var d struct {
		Access json.RawMessage `json:"access"`
	}
	err := api.doJSON(ctx, http.MethodGet, cmd.documentPath(id), nil, &d)
	var refusal *apiError
	if errors.As(err, &refusal) && (refusal.Status == http.StatusNotFound || refusal.Status == http.StatusBadRequest) {
		return nil // it is new, or refused by the upload
	}
	if err == nil && len(d.Access) > 0 {
		header.Set("X-Document-Access", string(d.Access))
	}
	return err
}

// newHeader returns the headers that all uploads have.
func (cmd *docsPutCmd) newHeader() (http.Header, error) {
	header := http.Header{}
	if len(cmd.Metadata) > 0 {
		encoded, err := json.Marshal(cmd.Metadata)
		if err != nil {
			return nil, err
		}
		header.Set("X-Document-Metadata", string(encoded))
	}
	if cmd.namesReaders() {
		encoded, err := json.Marshal(map[string][]string{"subjects": cmd.AccessSubject, "roles": cmd.AccessRole})
		if err != nil {
			return nil, err
		}
		header.Set("X-Document-Access", string(encoded))
	}
	return header, nil
}

// maxUploadAttempts bounds how often an upload is sent that the server asks to repeat later.
const maxUploadAttempts = 5

// putFile uploads a file and returns what became of it. An error ends the command: the next file would meet it as well.
func (cmd *docsPutCmd) putFile(ctx context.Context, api *client, header http.Header, f localFile) (outcome, reason string, err error) {
	if f.refused != "" {
		return refusedWord, f.refused, nil
	}
	content, err := os.ReadFile(f.path)
	if err != nil {
		return refusedWord, err.Error(), nil
	}
	header = header.Clone()
	if kind := mime.TypeByExtension(path.Ext(f.id)); kind != "" {
		header.Set("Content-Type", kind)
	} else {
		header.Set("Content-Type", "application/octet-stream")
	}
	if err := cmd.keepAccess(ctx, api, header, f.id); err != nil {
		return "", "", err
	}
	for attempt := 1; ; attempt++ {
		var d documentRecord
		err := api.sendFile(ctx, http.MethodPut, cmd.documentPath(f.id), header, content, &d)
		var refusal *apiError
		switch {
		case err == nil:
			return outcomeWords[d.Outcome], "", nil
		case !errors.As(err, &refusal), ctx.Err() != nil:
			return "", "", err
		case refusal.RetryAfter != "" && attempt < maxUploadAttempts:
			if err := waitSeconds(ctx, refusal.RetryAfter); err != nil {
				return "", "", err
			}
		// The document was refused, not the caller or the store.
		case refusal.Status == http.StatusBadRequest, refusal.Status == http.StatusRequestEntityTooLarge, refusal.Status == http.StatusTooManyRequests:
			return refusedWord, refusal.Message, nil
		default:
			return "", "", err
		}
	}
}

// waitSeconds waits for the time in a Retry-After header, a minute at most.
func waitSeconds(ctx context.Context, seconds string) error {
	n, err := strconv.Atoi(seconds)
	if err != nil || n < 1 {
		n = 1
	}
	return waitFor(ctx, min(time.Duration(n)*time.Second, time.Minute))
}

// waitFor waits until d has passed, or ctx has ended, whose error it returns.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// awaitIndexed waits until none of the documents is pending, prints those that failed, and returns how many these are.
func (cmd *docsPutCmd) awaitIndexed(ctx context.Context, c *console, api *client, ids []string) (failed int, err error) {
	pause := 200 * time.Millisecond
	for _, id := range ids {
		for {
			var d documentRecord
			if err := api.doJSON(ctx, http.MethodGet, cmd.documentPath(id), nil, &d); err != nil {
				return failed, fmt.Errorf("%s: %w", id, err)
			}
			if d.State == "failed" {
				failed++
				c.printStatus("failed: %s: %s", id, d.Error)
			}
			if d.State != "pending" {
				break
			}
			if err := waitFor(ctx, pause); err != nil {
				return failed, err
			}
			pause = min(pause*3/2, 2*time.Second)
		}
	}
	c.printStatus("%d indexed, %d failed", len(ids)-failed, failed)
	return failed, nil
}

// deleteMissing deletes the documents of the store that are not among files, after the human at the terminal has
// confirmed it.
func (cmd *docsPutCmd) deleteMissing(ctx context.Context, c *console, api *client, files []localFile) error {
	var missing []string
	query := url.Values{"page_size": {"1000"}}
	for {
		page, err := cmd.readPage(ctx, api, query)
		if err != nil {
			return err
		}
		for _, d := range page.Documents {
			if !slices.ContainsFunc(files, func(f localFile) bool { return f.id == d.ID }) && d.State != "deleting" {
				missing = append(missing, d.ID)
			}
		}
		if page.Next == "" {
			break
		}
		query.Set("page_token", page.Next)
	}
	if len(missing) == 0 {
		return nil
	}
	for _, id := range missing {
		c.printStatus("not among the files: %s", id)
	}
	if err := cmd.confirmYes(ctx, c, fmt.Sprintf("delete these %d documents of %s", len(missing), cmd.Store)); err != nil {
		return err
	}
	for _, id := range missing {
		if err := cmd.deleteDocument(ctx, api, id); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		c.printStatus("deleted %s", id)
	}
	return nil
}

// putProgress shows what becomes of files: a line for each, and on a terminal a bar below them.
type putProgress struct {
	console *console
	bar     *progressbar.ProgressBar // nil = err is no terminal
	counts  map[string]int           // by outcome
}

func newPutProgress(c *console, files int) *putProgress {
	p := &putProgress{console: c, counts: map[string]int{}}
	if c.interactive {
		p.bar = progressbar.NewOptions(files, progressbar.OptionSetWriter(c.err), progressbar.OptionSetDescription("upload"),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	return p
}

// report shows the outcome of a file. On a terminal files that are unchanged only advance the bar.
func (p *putProgress) report(outcome, id, reason string) {
	p.counts[outcome]++
	if p.bar != nil {
		_ = p.bar.Clear()
		defer func() { _ = p.bar.Add(1) }()
		if outcome == "unchanged" {
			return
		}
	}
	line := fmt.Sprintf("%-9s  %s", outcome, id)
	if reason != "" {
		line += ": " + reason
	}
	fmt.Fprintln(p.console.out, stripControls(line))
}

// finish removes the bar and shows the sums.
func (p *putProgress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
	var sums []string
	for _, outcome := range []string{"new", "changed", "updated", "unchanged", refusedWord} {
		if n := p.counts[outcome]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	if len(sums) > 0 {
		p.console.printStatus("%s", strings.Join(sums, ", "))
	}
}
