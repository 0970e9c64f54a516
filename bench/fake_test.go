package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/coder/websocket"
	"google.golang.org/grpc"

	"stoa/bench/model"
)

// TestMain lets the test's own program stand in for the processes that the bench starts: its servers, and a product
// that answers like stoa's surface and does nothing.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		ctx := context.Background()
		switch {
		case servers[os.Args[1]] != nil:
			end(serve(ctx, os.Args[1:]))
		case os.Args[1] == "version":
			fmt.Println("stoa v0\nfake")
			return
		case os.Args[1] == "serve":
			end(fakeStoa(ctx, os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func end(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func fakeStoa(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	host, port, grpcPort := f.String("host", "", ""), f.Int("port", 0, ""), f.Int("grpc-port", 0, "")
	database := f.String("database", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	path, isFile := strings.CutPrefix(*database, "sqlite://")
	rows, err := sql.Open(pick(isFile, "sqlite", "pgx"), pick(isFile, path, *database))
	if err != nil {
		return err
	}
	rows.SetMaxOpenConns(1)
	if err := migrate(ctx, rows, pick(isFile, "sqlite", "postgres")); err != nil {
		return err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", *host, *grpcPort))
	if err != nil {
		return err
	}
	calls := grpc.NewServer()
	pb.RegisterA2AServiceServer(calls, fakeCalls{})
	go func() { _ = calls.Serve(l) }()
	return http.ListenAndServe(fmt.Sprintf("%s:%d", *host, *port), fakeSurface(rows))
}

// fakeCalls answers over gRPC.
type fakeCalls struct {
	pb.UnimplementedA2AServiceServer
}

func (fakeCalls) SendStreamingMessage(_ *pb.SendMessageRequest, out grpc.ServerStreamingServer[pb.StreamResponse]) error {
	done := &pb.TaskStatusUpdateEvent{Status: &pb.TaskStatus{State: pb.TaskState_TASK_STATE_COMPLETED}}
	return out.Send(&pb.StreamResponse{Payload: &pb.StreamResponse_StatusUpdate{StatusUpdate: done}})
}

// fakeSocket answers each message that comes over a WebSocket.
func fakeSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for err == nil {
		if _, _, err = conn.Read(r.Context()); err == nil {
			err = conn.Write(r.Context(), websocket.MessageText, []byte(`{"done":true}`))
		}
	}
}

// fakeBinary writes a program that starts this test as the fake product. The bench gives a product no environment but the
// product's own, so the program adds what the fake needs besides.
func fakeBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	migrations, err := filepath.Abs("../migrations")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stoa")
	script := fmt.Sprintf("#!/bin/sh\nBENCH_TEST_MIGRATIONS='%s' exec '%s' \"$@\"\n", migrations, self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// migrate makes the product's tables, as it does itself when it starts.
func migrate(ctx context.Context, rows *sql.DB, engine string) error {
	var has int
	if rows.QueryRowContext(ctx, `SELECT count(*) FROM document_store`).Scan(&has) == nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv("BENCH_TEST_MIGRATIONS"), engine, "*.up.sql"))
	if err == nil && len(files) == 0 {
		err = errors.New("there are no migrations to apply")
	}
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := rows.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// kept is the document of each store that the fake keeps, as one chunk.
const kept = "doc-00007"

// fakeDocuments answers on document stores. The rows that it keeps satisfy the product's tables.
func fakeDocuments(mux *http.ServeMux, rows *sql.DB) {
	var mu sync.Mutex
	has := map[string]int{} // documents by tenant
	add := func(ctx context.Context, store, id string) error {
		for _, text := range []string{
			`INSERT INTO document_store VALUES ($1, $2, 'upload', 1, 1, '', 'm', 0, '', '', 1, '', '', 0, 0) ON CONFLICT DO NOTHING`,
			`INSERT INTO document VALUES ($1, $2, $3, '', '', 1, 'indexed', '', '', '', '', '{"group":"group-7"}', '{}', TRUE, 1, 0, 0, 0, 0)`,
			`INSERT INTO chunk (tenant, store, document, generation, revision, ordinal, id, start_at, end_at, page, heading, sheet, line, word_count, words, text)
				VALUES ($1, $2, $3, 1, 1, 0, 'c', 0, 1, 0, '', '', 0, 1, 'w1', 'w1')`,
			`INSERT INTO chunk_vector SELECT tenant, store, document, generation, revision, ordinal, id, 'm', '', $4
				FROM chunk WHERE tenant = $1 AND store = $2 AND document = $3`,
		} {
			args := []any{store, store, id, []byte("abcd")}
			if _, err := rows.ExecContext(ctx, text, args[:max(strings.Count(text, "$4")*4, strings.Count(text, "$3")*3, 2)]...); err != nil {
				return err
			}
		}
		return nil
	}
	mux.HandleFunc("PUT /v1/document-stores/{store}/documents/{id}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		has[r.Header.Get("Authorization")]++
		store, id := r.PathValue("store"), r.PathValue("id")
		if id == kept || strings.HasPrefix(store, "small") {
			if err := add(r.Context(), store, id); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	})
	mux.HandleFunc("GET /v1/document-stores", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n := has[r.Header.Get("Authorization")]
		fmt.Fprintf(w, `{"documentStores":[{"documents":%d,"chunks":%d}]}`, n, 20*n)
	})
	mux.HandleFunc("POST /v1/document-stores/{search}", func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Mode string }
		_ = json.NewDecoder(r.Body).Decode(&q)
		fmt.Fprintf(w, `{"results":[{"document":%q,"text":"w1"}],"mode":%q}`, kept, q.Mode)
	})
}

// burn uses processor time.
func burn(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func fakeSurface(rows *sql.DB) http.Handler {
	var mu sync.Mutex
	loaded := map[string][]byte{} // a tenant's first call takes 8 KiB
	admin := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+os.Getenv("STOA_ADMIN_SECRET") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"access_token":"token-of-%s"}`, r.PathValue("app"))
	}
	mux := http.NewServeMux()
	fakeDocuments(mux, rows)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /admin/apps", admin)
	mux.HandleFunc("POST /admin/apps/{app}/tokens", admin)
	mux.HandleFunc("POST /admin/apps/{app}", admin) // :suspend and :resume
	var looks atomic.Int64
	mux.HandleFunc("GET /admin/queue", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"pending":%d,"running":0}`, max(0, 30-10*looks.Add(1)))
	})
	mux.HandleFunc("GET /v1/agents/{agent}/stream", fakeSocket)
	mux.HandleFunc("GET /v1/agents/{agent}/{what...}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"name":%q,"tasks":[{"id":"task-1"}]}`, r.PathValue("agent"))
	})
	mux.HandleFunc("POST /agents/{agent}", func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Method string }
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		token := r.Header.Get("Authorization")
		mu.Lock()
		if loaded[token] == nil {
			loaded[token] = make([]byte, 8<<10)
		}
		mu.Unlock()
		if call.Method == "message:send" {
			fmt.Fprint(w, `{"result":{"status":{"state":"completed"}}}`)
			return
		}
		if call.Method == "tasks/pushNotificationConfig/get" {
			fmt.Fprint(w, `{"error":{"code":-32003}}`)
			return
		}
		if call.Method == "tasks/subscribe" {
			for _, state := range []string{"submitted", "working"} {
				fmt.Fprintf(w, "data: {\"status\":{\"state\":%q,\"timestamp\":%q}}\n\n", state, time.Now().Format(time.RFC3339Nano))
			}
			return
		}
		if r.PathValue("agent") == model.Stamp {
			fmt.Fprintf(w, "data: {\"text\":\"%s%d\"}\n\ndata: {\"state\":\"completed\"}\n\n", model.Mark, time.Now().UnixMicro())
			return
		}
		if r.PathValue("agent") == "assistant" {
			fmt.Fprint(w, "data: {\"state\":\"completed\"}\n\n")
			return
		}
		n, err := strconv.Atoi(strings.TrimPrefix(r.PathValue("agent"), "tokens-"))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		for range n {
			burn(30 * time.Microsecond)
			fmt.Fprintf(w, "data: {\"text\":%q}\n\n", model.Answer(1))
		}
		fmt.Fprintf(w, "data: {\"state\":\"completed\",\"text\":%q}\n\n", model.Answer(n))
	})
	return mux
}
