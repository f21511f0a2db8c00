package main

import (
	"reflect"

	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
)

// jaegerQuery is a search of Grafana's Jaeger data source, which the SDK does not have. It is its own builder.
type jaegerQuery struct {
	Datasource common.DataSourceRef `json:"datasource"`
	RefID      string               `json:"refId"`
	QueryType  string               `json:"queryType"`
	Service    string               `json:"service"`
	Operation  string               `json:"operation,omitempty"`
	Tags       string               `json:"tags,omitempty"` // key=value key=value
	Limit      int                  `json:"limit"`
}

// Build implements cog.Builder.
func (q jaegerQuery) Build() (variants.Dataquery, error) { return q, nil }

// The methods of [variants.Dataquery].
func (jaegerQuery) ImplementsDataqueryVariant()            {}
func (jaegerQuery) DataqueryType() string                  { return "jaeger" }
func (jaegerQuery) Validate() error                        { return nil }
func (q jaegerQuery) Equals(other variants.Dataquery) bool { return reflect.DeepEqual(q, other) }
