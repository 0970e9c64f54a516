package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc/document/quality"
	"stoa/authz"
)

// docsEvalCmd is `stoa docs eval`.
type docsEvalCmd struct {
	storeFlags `embed:""`
	File       string `arg:"" help:"The questions, or - for standard input: a line for each, {\"question\": \"...\", \"documents\": [\"ID\", ...]} with the documents that answer it."`
	JSON       bool   `name:"json" help:"Print the measures as JSON."`
}

// Help returns the text about the measures that kong appends to --help.
func (cmd *docsEvalCmd) Help() string {
	return "Asks each question by vectors, by words and by both, and compares the documents that are found with those that answer it. " +
		"recall@k is the part of these among the first k documents, MRR the mean of 1/rank of the first of them, nDCG@10 weighs all of the first ten by their ranks. " +
		"1 is best. A store without an embedder is searched by words only."
}

// evalModes are the modes in the order of the table.
var evalModes = []string{"vector", "text", "hybrid"}

// evalPassages is how many passages are asked for, so that ten different documents are among them.
const evalPassages = 100

// judgment is a question with the documents that answer it.
type judgment struct {
	Question  string   `json:"question"`
	Documents []string `json:"documents"`
}

// Run asks the questions and prints the measures of each mode.
func (cmd *docsEvalCmd) Run(ctx context.Context, c *console) error {
	text, err := c.readInput(cmd.File)
	if err != nil {
		return err
	}
	judgments, err := parseJudgments(text)
	if err != nil {
		return &exitError{code: exitUsage, cause: fmt.Errorf("%s: %w", cmd.File, err)}
	}
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	store, err := cmd.readStore(ctx, api)
	if err != nil {
		return err
	}
	measured := map[string]quality.Scores{}
	for _, mode := range evalModes {
		if mode != "text" && store.Embedder == "" {
			continue
		}
		if measured[mode], err = cmd.measure(ctx, c, api, mode, judgments); err != nil {
			return err
		}
	}
	if cmd.JSON {
		return c.printJSON(map[string]any{"store": cmd.Store, "embedder": store.Embedder, "questions": len(judgments), "modes": measured})
	}
	var rows [][]string
	for _, mode := range evalModes {
		row := []string{mode, "-", "-", "-", "-", "-"}
		if s, ok := measured[mode]; ok {
			for i, value := range []float64{s.Recall1, s.Recall5, s.Recall10, s.MRR, s.NDCG10} {
				row[i+1] = fmt.Sprintf("%.3f", value)
			}
		}
		rows = append(rows, row)
	}
	if err := c.printTable([]string{"MODE", "RECALL@1", "RECALL@5", "RECALL@10", "MRR", "NDCG@10"}, rows); err != nil {
		return err
	}
	if store.Embedder == "" {
		c.printStatus("%d questions; the store has no embedder, so that it is searched by words only", len(judgments))
	} else {
		c.printStatus("%d questions; vectors by %s", len(judgments), store.Embedder)
	}
	return nil
}

// parseJudgments returns the questions of a file.
func parseJudgments(text string) (all []judgment, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.TrimSpace(line) == "" {
			continue
		}
		var j judgment
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&j); err != nil {
			return nil, fmt.Errorf("line %d is not {\"question\": \"...\", \"documents\": [\"ID\"]}: %w", number, err)
		}
		if strings.TrimSpace(j.Question) == "" || len(j.Documents) == 0 {
			return nil, fmt.Errorf("line %d needs a question and the documents that answer it", number)
		}
		all = append(all, j)
	}
	if len(all) == 0 {
		return nil, errors.New("there are no questions")
	}
	return all, nil
}

// measure asks all questions in one mode.
func (cmd *docsEvalCmd) measure(ctx context.Context, c *console, api *client, mode string, judgments []judgment) (quality.Scores, error) {
	scores := make([]quality.Scores, len(judgments))
	for i, j := range judgments {
		var found struct {
			Results        []passage
			Mode, Degraded string
		}
		body := map[string]any{"query": j.Question, "mode": mode, "limit": evalPassages}
		if err := api.doJSON(ctx, http.MethodPost, cmd.storePath(":search"), body, &found); err != nil {
			return quality.Scores{}, fmt.Errorf("%q: %w", j.Question, err)
		}
		// A search that lost a part would be measured as another mode.
		if found.Degraded != "" {
			c.printStatus("%q was searched without a part: %s", j.Question, found.Degraded)
		}
		ids := make([]string, len(found.Results))
		for n, p := range found.Results {
			ids[n] = p.Document
		}
		scores[i] = quality.Score(ids, j.Documents)
	}
	return quality.Mean(scores), nil
}
