package telemetry_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cachelab/telemetry"
)

// The quantiles that Prometheus estimates from the buckets are within 5 % of the exact ones from 0.2 to 2 s, for the
// latencies of a herd in any shape: one fill, all alike, a queue, two humps.
func TestQuantilesFromTheBucketsAreNearTheExactOnes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func(low float64) float64{
		"all alike":  func(low float64) float64 { return low },
		"one fill":   func(low float64) float64 { return low * (1 + 0.1*random.Float64()) },
		"a queue":    func(low float64) float64 { return low + 0.25*float64(random.IntN(5)) },
		"two humps":  func(low float64) float64 { return low * float64(1+random.IntN(2)) },
		"long tails": func(low float64) float64 { return low * math.Exp(random.ExpFloat64()/4) },
	}
	checked := 0
	for name, shape := range shapes {
		for low := 0.2; low <= 2; low += 0.013 {
			latencies := make([]float64, 250)
			for i := range latencies {
				latencies[i] = shape(low)
			}
			slices.Sort(latencies)
			for _, q := range []float64{0.5, 0.95, 0.99} {
				exact := latencies[int(math.Ceil(q*250))-1]
				if exact > 2 {
					continue
				}
				checked++
				if got := estimated(q, latencies); math.Abs(got/exact-1) > 0.05 {
					t.Errorf("%s from %v s: the %v quantile is %.4f, estimated %.4f", name, time.Duration(low*1e9), q, exact, got)
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d quantiles were checked", checked)
	}
	if n := len(telemetry.Buckets()); n > 80 {
		t.Errorf("%d buckets, and each is a series", n)
	}
}

// estimated is Prometheus's histogram_quantile: linear within the bucket that holds the rank.
func estimated(q float64, latencies []float64) float64 {
	rank, below, low := q*float64(len(latencies)), 0.0, 0.0
	for _, bound := range telemetry.Buckets() {
		upTo := 0.0
		for _, l := range latencies {
			if l <= bound {
				upTo++
			}
		}
		if upTo >= rank {
			return low + (bound-low)*(rank-below)/(upTo-below)
		}
		below, low = upTo, bound
	}
	return low
}
