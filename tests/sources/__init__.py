"""The site's own monitoring: a real Prometheus with recorded series, and servers that misbehave."""
