"""How clients fare: scores, the spread over them, and a second environment."""
