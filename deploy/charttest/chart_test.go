package charttest

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestX(t *testing.T) {
	_ = cli.NewProjectOptions
	_ = loader.Load
	_ = chartutil.ToRenderValues
	_ = engine.Render
	_ = lint.AllWithKubeVersionAndSchemaValidation
	_ = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
}
