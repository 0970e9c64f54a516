package a2agrpc

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/apierror"
)

// newStatusError returns the gRPC status of a fault. Its details are a google.rpc.ErrorInfo with the reason, a
// BadRequest if a field is wrong, and a RetryInfo if header has Retry-After.
func newStatusError(f *apierror.Fault, header http.Header) error {
	// The status name of the fault is the name of a gRPC code; a name that is none leaves Unknown.
	code := codes.Unknown
	_ = code.UnmarshalJSON([]byte(strconv.Quote(f.GRPC)))
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: f.Reason, Domain: spec.ProtocolDomain, Metadata: a2a.ErrorMetadata(*f)}}
	if f.Field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: f.Field, Description: f.Text}}})
	}
	if n, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(n) * time.Second)})
	}
	st := status.New(code, f.Text)
	if full, err := st.WithDetails(details...); err == nil {
		st = full
	}
	return st.Err()
}

// forwardedHeaders are the response headers of package surface that gRPC callers receive as metadata. The others
// only have a meaning in HTTP.
var forwardedHeaders = []string{
	"X-Request-Id", "Retry-After", "Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
}

// toMetadata returns the forwarded headers as metadata, whose keys are in lower case.
func toMetadata(header http.Header) metadata.MD {
	md := metadata.MD{}
	for name := range maps.Keys(header) {
		if slices.Contains(forwardedHeaders, name) {
			md.Set(strings.ToLower(name), header[name]...)
		}
	}
	return md
}
