package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"stoa/bench/contender"
	"stoa/bench/model"
)

// servers are the parts of this program that run as processes of their own: `bench NAME ADDRESS`.
var servers = map[string]func() http.Handler{
	"contender": contender.Handler,
	"idle":      idle,
	"model":     model.Handler,
}

func serve(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: bench %s HOST:PORT", args[0])
	}
	srv := &http.Server{Addr: args[1], Handler: servers[args[0]](), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stopped()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
