"""Which file of this folder defines an operator, by its names without their domains.

Written by tools/gen_docs.py. Of a name that is missing or elsewhere all files are looked through.
"""

NAMES = {
    "activations": "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu PRelu Selu Shrink ThresholdedRelu",
    "attention": "Attention DecoderMaskedMultiHeadAttention MultiHeadAttention QAttention",
    "bilinear": "DeformConv DeformSample",
    "cast": "BitCast Cast CastLike Rounded",
    "codebook": "MatMulBnb4 MatMulFpQ4",
    "control": "If Loop",
    "conv": "Conv ConvInteger ConvTranspose QLinearConv",
    "det": "Det DetByElimination",
    "einsum": "Einsum",
    "elementwise": (
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Clip Div Dropout Equal Greater GreaterOrEqual Identity "
        "IsInf IsNaN Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor "
    ),
    "exact": "ExactQuantize",
    "extents": "After Bounded CommonSize RangeExtent ReshapeExtents SameSize SliceExtent",
    "fused": (
        "BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu BitmaskBiasDropout BitmaskDropout CDist "
        "ConvTransposeWithDynamicPads ExpandDims FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation "
        "GatedAdd GatherND Gelu GemmFastGelu GridSample IsAllFinite NhwcConv NhwcFusedConv NhwcMaxPool Pad "
        "QuickGelu Range ScaledSiLU TransposeMatMul Trilu UnfoldTensor "
    ),
    "fused_norm": (
        "EmbedLayerNormalization GatedRMSNorm GroupNorm QEmbedLayerNormalization SimplifiedLayerNormalization "
        "SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization "
    ),
    "grams": "TfIdfVectorizer",
    "grouped": "GroupedProduct",
    "indexing": "Gather GatherElements GatherND Scatter ScatterElements ScatterND TensorScatter",
    "internal": "Copy Foreign Fused Unpack",
    "inverse": "Inverse",
    "labels": "CategoryMapper LabelEncoder",
    "linear_attention": "CausalConvWithState DeltaRule GatedDeltaNet LinearAttention LinearAttentionGate",
    "matmul": "Gemm MatMul MatMulInteger QLinearMatMul",
    "ml_coupling": "CoupledProbabilities",
    "ml_features": "ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer Normalizer OneHotEncoder Scaler ZipMap",
    "ml_scores": "LinearClassifier LinearRegressor SVMClassifier SVMRegressor",
    "ml_trees": "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor TreeTables",
    "moe": "MoE MoEGroupRouter QMoE SwiGLU",
    "movement": "Col2Im Concat DepthToSpace Pad ReverseSequence Slice SpaceToDepth Split Transpose Trilu",
    "murmur": "MurmurHash3",
    "nbits": "BlockProduct ByteBlockProduct GatherBlockQuantized GroupedBlockProduct MatMulNBits UnpackBits",
    "ngrams": "NGramHashMapping NGramRepeatBlock",
    "norm": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization "
        "MeanVarianceNormalization RMSNormalization "
    ),
    "order": "ArgMax ArgMin CumProd CumSum TopK",
    "packed_rows": "GatherPacked",
    "pool": "AveragePool GlobalLpPool LpPool MaxPool MaxUnpool",
    "position_bias": "GatedRelativePositionBias RelativePositionBias",
    "qlinear": (
        "DynamicQuantizeMatMul MatMulInteger16 MatMulIntegerToFloat MulInteger QGemm QLinearAdd QLinearAveragePool "
        "QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid "
        "QLinearSoftmax QLinearWhere ReduceSumInteger "
    ),
    "qlstm": "DynamicQuantizeLSTM QuantizedLstmLoop",
    "quant": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    "random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike Uniform",
    "recurrent": "GRU GruLoop LSTM LstmLoop RNN RnnLoop",
    "reduce": (
        "GlobalAveragePool GlobalMaxPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare "
    ),
    "regex": "RegexFullMatch",
    "resize": "Resize Upsample",
    "roi": "CropAndResize MaxRoiPool RoiAlign RoiAlignAdaptive",
    "rotary": "GemmaRotaryEmbedding GroupQueryAttention MRotaryEmbedding RotaryEmbedding SparseAttention",
    "sample": "GridSample",
    "selection": "Compress NonMaxSuppression NonZero Unique UniqueRows UniqueRuns",
    "sequence": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct "
        "SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence "
    ),
    "shape": (
        "Constant ConstantOfShape Expand EyeLike Flatten Iota OneHot Range Reshape Shape Size Squeeze Tile "
        "Unsqueeze "
    ),
    "sized": "Sized",
    "softmax": "Hardmax LogSoftmax Softmax",
    "spectral": "ComplexMul ComplexMulConj DFT FourierTransform Irfft MelWeightMatrix Rfft STFT",
    "streams": "BranchwiseRMSNorm EngramGate HyperConnectionPostMix HyperConnectionPreMix",
    "strings": "StringConcat StringNormalizer StringSplit",
    "tfl": "TflAveragePool TflQuantize TflRescale TflRound TflTable",
    "tfl16": "TflCurve16 TflSoftmax16 TflTable16",
    "tfl_boxes": "TflDetect TflSuppress",
    "tfl_lstm": "TflLstm",
    "tfl_lstm8": "TflLstm8",
    "tfl_rnn": "TflLstmFull TflRnn",
    "tfl_rows": "TflDivide TflL2Norm TflLogSoftmax TflProduct TflSoftmaxFixed",
    "tfl_signal": "TflAutoScale TflFilterBank TflLog TflPcan TflRfft TflRoot",
    "unary": (
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor Log Mish Neg Not Reciprocal "
        "Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh "
    ),
    "update": "UpdateSlice",
}
