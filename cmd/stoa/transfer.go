package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"stoa/tenancy/transfer"
)

// transferTimeout bounds the wait for the answer to an import, which the server reads twice.
const transferTimeout = 6 * time.Hour

// passphraseFlag says where the passphrase of a file comes from. It is no argument, because other users of the machine see
// those.
type passphraseFlag struct {
	PassphraseFile string `placeholder:"FILE" help:"A file with the passphrase; without it the passphrase is asked for."`
}

// read returns the passphrase, without the line end of a file. With twice a passphrase that is typed is asked for again,
// since a typing error would make the file useless.
func (f passphraseFlag) read(ctx context.Context, c *console, twice bool) (string, error) {
	if f.PassphraseFile != "" {
		content, err := os.ReadFile(f.PassphraseFile)
		if err != nil {
			return "", &exitError{code: exitUsage, cause: err}
		}
		return checkPassphrase(strings.TrimRight(string(content), "\r\n"))
	}
	first, ok := c.promptLine(ctx, "Passphrase of the file: ", true)
	if ok && twice {
		again, _ := c.promptLine(ctx, "The same again: ", true)
		if again != first {
			return "", &exitError{code: exitUsage, cause: errors.New("the passphrases differ")}
		}
	}
	return checkPassphrase(first)
}

func checkPassphrase(text string) (string, error) {
	if len(text) < transfer.MinPassphrase {
		return "", &exitError{code: exitUsage, cause: fmt.Errorf("the passphrase must have at least %d characters", transfer.MinPassphrase)}
	}
	return text, nil
}

// newTransferClient returns a client with the passphrase in its header.
func (f serverFlag) newTransferClient(passphrase string) (*client, error) {
	api, err := f.newAdminClient()
	if err != nil {
		return nil, err
	}
	api.header.Set("X-Passphrase", base64.StdEncoding.EncodeToString([]byte(passphrase)))
	if t, ok := api.httpClient.Transport.(*http.Transport); ok {
		t.ResponseHeaderTimeout = transferTimeout
	}
	return api, nil
}

// appExportCmd is `stoa app export`.
type appExportCmd struct {
	serverFlag     `embed:""`
	passphraseFlag `embed:""`
	Name           string `arg:"" help:"The app's name. It must be suspended."`
	File           string `arg:"" help:"The file to write; it must not exist."`
}

// Run writes the app to the file, which has its name only when it is complete.
func (cmd *appExportCmd) Run(ctx context.Context, c *console) error {
	if _, err := os.Lstat(cmd.File); err == nil {
		return &exitError{code: exitUsage, cause: fmt.Errorf("%s exists already", cmd.File)}
	}
	passphrase, err := cmd.read(ctx, c, true)
	if err != nil {
		return err
	}
	api, err := cmd.newTransferClient(passphrase)
	if err != nil {
		return err
	}
	resp, err := api.sendRequest(ctx, http.MethodGet, "/admin/apps/"+url.PathEscape(cmd.Name)+"/export", "application/x-ndjson", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	part := cmd.File + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	rows, err := copyExport(file, resp.Body)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(part, cmd.File)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	c.printStatus("%s exported to %s: %d rows", cmd.Name, cmd.File, rows)
	return nil
}

// copyExport copies an export and returns the rows in its last line. An export without one was cut off.
func copyExport(to io.Writer, from io.Reader) (rows int64, err error) {
	tail := &tailWriter{}
	if _, err := io.Copy(io.MultiWriter(to, tail), from); err != nil {
		return 0, fmt.Errorf("the export was cut off: %w", err)
	}
	var last struct {
		End *struct {
			Rows int64 `json:"rows"`
		} `json:"end"`
	}
	if json.Unmarshal(tail.lastLine(), &last) != nil || last.End == nil {
		return 0, errors.New("the export was cut off: its last line is missing")
	}
	return last.End.Rows, nil
}

// tailWriter keeps the last bytes that were written.
type tailWriter struct{ content []byte }

// tailSize is more than the last line of an export has.
const tailSize = 1024

// Write implements [io.Writer].
func (t *tailWriter) Write(content []byte) (int, error) {
	t.content = append(t.content, content[max(0, len(content)-tailSize):]...)
	t.content = append(t.content[:0], t.content[max(0, len(t.content)-tailSize):]...)
	return len(content), nil
}

// lastLine returns the last line, without its end; nil if it has none.
func (t *tailWriter) lastLine() []byte {
	line, ok := bytes.CutSuffix(t.content, []byte("\n"))
	if !ok {
		return nil
	}
	return line[bytes.LastIndexByte(line, '\n')+1:]
}

// appImportCmd is `stoa app import`.
type appImportCmd struct {
	serverFlag     `embed:""`
	passphraseFlag `embed:""`
	File           string `arg:"" type:"existingfile" help:"The file that stoa app export wrote."`
	Grants         string `enum:"keep,drop," default:"" placeholder:"keep|drop" help:"What becomes of the app's grants, powers over the host that it comes from. Needed if it has any."`
	JSON           bool   `name:"json" help:"Print the API's answer as JSON."`
}

// Run sends the file and prints what was imported.
func (cmd *appImportCmd) Run(ctx context.Context, c *console) error {
	file, err := os.Open(cmd.File)
	if err != nil {
		return err
	}
	defer file.Close()
	passphrase, err := cmd.read(ctx, c, false)
	if err != nil {
		return err
	}
	api, err := cmd.newTransferClient(passphrase)
	if err != nil {
		return err
	}
	query := ""
	if cmd.Grants != "" {
		query = "?grants=" + cmd.Grants
	}
	resp, err := api.send(ctx, http.MethodPost, "/admin/apps:import"+query, http.Header{"Content-Type": {"application/x-ndjson"}, "Accept": {"application/json"}}, file)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var raw json.RawMessage
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(&raw); err != nil {
		return fmt.Errorf("read the answer of %s: %w", api.baseURL, err)
	}
	if cmd.JSON {
		return c.printJSON(raw)
	}
	var answer struct {
		App     appRecord        `json:"app"`
		Rows    map[string]int64 `json:"rows"`
		Dropped map[string]int64 `json:"dropped"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", api.baseURL, err)
	}
	total := int64(0)
	for _, n := range answer.Rows {
		total += n
	}
	answer.App.printWarnings(c)
	for _, table := range slices.Sorted(maps.Keys(answer.Dropped)) {
		c.printStatus("%d rows of %s were left out: they are encrypted for owners by the name of the other installation's issuer", answer.Dropped[table], table)
	}
	c.printStatus("%s imported: %d rows (revision %d, %s)", answer.App.Name, total, answer.App.Revision, answer.App.Status)
	return nil
}
